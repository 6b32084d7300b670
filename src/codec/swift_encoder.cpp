#include "codec/swift_encoder.hpp"

#include <cmath>

#include "codec/block_layout.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

// With fewer elements for each that changed, coding all of them takes less time than a list.
constexpr std::size_t kSwiftElementsPerChange = 32;

/// About what the block would take, from the number of changes and a sample of their steps.
double expected_bytes(const BlockChanges& changes, std::size_t element_count, bool sign_magnitude) {
    constexpr double kHeaderBytes = 24;
    const auto count = static_cast<double>(changes.count());
    const double gap_bits = std::log2(static_cast<double>(element_count) / count) + 1.5;
    return kHeaderBytes + (count * gap_bits + expected_step_bits(changes, sign_magnitude)) / 8;
}

}  // namespace

void SwiftEncoder::encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                          const DtypeTraits& traits, Bytes& out) {
    if (changes.empty()) return;
    const std::size_t element_count = old_block.size() / traits.element_bytes;
    const std::size_t start = out.size();
    const auto try_sparse = [&](double most_bytes) {
        encode_sparse(element_count, changes, traits, out);
        if (static_cast<double>(out.size() - start) <= most_bytes) return true;
        out.resize(start);
        return false;
    };
    if (changes.count() < element_count / kSwiftElementsPerChange &&
        try_sparse(static_cast<double>(old_block.size()))) {
        return;
    }
    const auto new_block = dense_.new_block(old_block, changes);
    const double dense_bytes = dense_.plan(old_block, new_block, traits);
    if (element_count < kShortBlock &&
        expected_bytes(changes, element_count, traits.sign_magnitude) < dense_bytes &&
        try_sparse(dense_bytes)) {
        return;
    }
    dense_.encode(old_block, new_block, traits, out);
}

bool SwiftEncoder::is_dense(std::span<const std::byte> old_block,
                            std::span<const std::byte> new_block, unsigned element_bytes) {
    return old_block.size() / element_bytes >= kShortBlock &&
           changed_share(old_block, new_block, element_bytes) * kSwiftElementsPerChange >= 1;
}

void SwiftEncoder::encode_dense(std::span<const std::byte> old_block,
                                std::span<const std::byte> new_block, const DtypeTraits& traits,
                                Bytes& out) {
    dense_.plan(old_block, new_block, traits);
    dense_.encode(old_block, new_block, traits, out);
}

bool SwiftEncoder::encode_if_dense(std::span<const std::byte> old_block,
                                   std::span<const std::byte> new_block, const DtypeTraits& traits,
                                   const TensorSeed& seed, const ScanDigest& digest,
                                   std::uint64_t first_word, Bytes& out, BlockChanges* keep,
                                   EncodedDifference& difference) {
    if (!is_dense(old_block, new_block, traits.element_bytes)) return false;
    difference =
        dense_.encode_difference(old_block, new_block, traits, seed, digest, first_word, out, keep);
    return true;
}

void SwiftEncoder::encode_sparse(std::size_t element_count, const BlockChanges& changes,
                                 const DtypeTraits& traits, Bytes& out) {
    const GapShape shape = GapShape::of(changes.count(), element_count);
    out.push_back(static_cast<std::byte>(BlockKind::kSwift));
    append_varint(out, changes.count());
    out.push_back(static_cast<std::byte>(shape.low_bits));
    out.push_back(static_cast<std::byte>(shape.zero_chance));
    append_varint(out, steps_.find(changes, traits));
    gaps_.append_low_bits(changes.positions, shape, out);
    steps_.append_signs(out);
    steps_.put_lengths(rans_);
    rans_.finish(out, gaps_.symbols(), [&](RansStates& states) { gaps_.code(states); });
}

}  // namespace wisp
