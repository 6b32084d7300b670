#include "codec/swift_encoder.hpp"

#include <cmath>

#include "codec/bit_writer.hpp"
#include "codec/block_layout.hpp"
#include "codec/gap_table.hpp"
#include "codec/step_model.hpp"
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

void put_gaps(const BlockChanges& changes, const GapShape& shape, RansWriter& rans, Bytes& out) {
    const QuotientTable table(shape.zero_chance);
    const std::uint32_t low_mask = (std::uint32_t{1} << shape.low_bits) - 1;
    BitWriter low_bits(out);
    std::uint32_t next = 0;
    Lane lane = Lane::kPosition;
    for (const std::uint32_t position : changes.positions) {
        const std::uint32_t gap = position - next;
        next = position + 1;
        low_bits.put(gap & low_mask, shape.low_bits);
        std::uint32_t quotient = gap >> shape.low_bits;
        for (; quotient >= table.escape; quotient -= table.escape) {
            rans.put_value(table.start[table.escape], table.frequency[table.escape], kQuotientBits,
                           lane);
        }
        rans.put_value(table.start[quotient], table.frequency[quotient], kQuotientBits, lane);
        lane = lane == Lane::kPosition ? Lane::kValue : Lane::kPosition;
    }
    low_bits.finish();
}

template <class T>
void put_steps(const BlockChanges& changes, const DtypeTraits& traits, RansWriter& rans) {
    const ExponentField field = exponent_field(traits);
    const ValueOrder<T> order(traits.sign_magnitude);
    BinadeStepModel model;
    for (std::size_t i = 0; i < changes.count(); ++i) {
        const T before = load_element<T>(changes.old_bits.data(), i);
        const Step step = step_between(before, load_element<T>(changes.new_bits.data(), i), order);
        const StepContext context = model.context(field.of(before));
        if (i % 2 == 0) {
            put_step<Lane::kPosition>(rans, context, step);
        } else {
            put_step<Lane::kValue>(rans, context, step);
        }
    }
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
    put_gaps(changes, shape, rans_, out);
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        put_steps<T>(changes, traits, rans_);
        return 0;
    });
    rans_.finish(out);
}

}  // namespace wisp
