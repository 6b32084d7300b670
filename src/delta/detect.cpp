#include "delta/detect.hpp"

#include <algorithm>

#include "kernel/scatter.hpp"

namespace wisp {
namespace {

/// Parts of two blocks that begin on a whole word.
struct Parts {
    std::span<const std::byte> old_part;
    std::span<const std::byte> new_part;
    std::uint64_t first_word;
};

/// Both elements at each position side by side, and how the digest moves there, of each word once.
/// In one loop, since what a position leads to is one line of each part.
template <class T>
TouchedSums take_changes(const Parts& parts, std::span<const std::uint32_t> positions,
                         const TensorSeed& seed, std::byte* old_bits, std::byte* new_bits) {
    const std::size_t size = parts.old_part.size();
    const std::byte* const old_part = parts.old_part.data();
    const std::byte* const new_part = parts.new_part.data();
    // An eighth: whole vectors take less time.
    const bool dense = positions.size() * 8 * sizeof(T) > size;
    if (dense) {
        gather(old_part, positions, sizeof(T), old_bits);
        gather(new_part, positions, sizeof(T), new_bits);
        return active_kernels()
            .compare(old_part, new_part, size / sizeof(T), sizeof(T), seed, parts.first_word)
            .touched;
    }
    TouchedSums sums;
    std::size_t last = SIZE_MAX;
    for (const std::uint32_t position : positions) {
        std::memcpy(old_bits, old_part + position * sizeof(T), sizeof(T));
        std::memcpy(new_bits, new_part + position * sizeof(T), sizeof(T));
        old_bits += sizeof(T);
        new_bits += sizeof(T);
        const std::size_t word = position * sizeof(T) / 8;
        if (word == last) continue;
        last = word;
        const std::uint64_t index = parts.first_word + word;
        sums.before += mix_word(seed, index, load_word(old_part, word * 8, size));
        sums.after += mix_word(seed, index, load_word(new_part, word * 8, size));
    }
    return sums;
}

}  // namespace

std::span<const std::uint32_t> Detector::list_positions(std::span<const std::byte> old_part,
                                                        std::span<const std::byte> new_part,
                                                        std::size_t first, const ScanDigest& digest,
                                                        BlockChanges& changes) {
    const unsigned width = changes.element_bytes;
    positions_.resize(kDetectElements);
    const std::size_t changed =
        active_kernels().scan(old_part.data(), new_part.data(), old_part.size() / width, width,
                              positions_.data(), digest);
    const std::size_t before = changes.count();
    const std::span<const std::uint32_t> positions(positions_.data(), changed);
    changes.new_bits.resize((before + changed) * width);
    changes.positions.resize(before + changed);
    std::ranges::transform(
        positions, changes.positions.begin() + static_cast<std::ptrdiff_t>(before),
        [&](std::uint32_t position) { return position + static_cast<std::uint32_t>(first); });
    return positions;
}

void Detector::find(std::span<const std::byte> old_part, std::span<const std::byte> new_part,
                    std::size_t first, const ScanDigest& digest, BlockChanges& changes) {
    const std::size_t before = changes.new_bits.size();
    const auto positions = list_positions(old_part, new_part, first, digest, changes);
    gather(new_part.data(), positions, changes.element_bytes, changes.new_bits.data() + before);
}

void Detector::detect(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                      const BlockRange& range, const TensorSeed& seed, bool digest_old,
                      DetectedBlock& found) {
    const std::size_t width = range.element_bytes;
    const auto count = static_cast<std::size_t>(range.element_count);
    found.old_state = {};
    found.touched = {};
    BlockChanges& changes = found.changes;
    changes.clear();
    changes.element_bytes = range.element_bytes;
    ScanDigest digest{digest_old ? &seed : nullptr, 0, &found.old_state};
    for (std::size_t first = 0; first < count; first += kDetectElements) {
        const std::size_t size = std::min(kDetectElements, count - first) * width;
        digest.first_word = range.first_word() + first * width / 8;
        const Parts parts = {old_block.subspan(first * width, size),
                             new_block.subspan(first * width, size), digest.first_word};
        const std::size_t before = changes.new_bits.size();
        const auto positions =
            list_positions(parts.old_part, parts.new_part, first, digest, changes);
        changes.old_bits.resize(changes.new_bits.size());
        found.touched += with_element_type(range.element_bytes, [&]<class T>(T) {
            return take_changes<T>(parts, positions, seed, changes.old_bits.data() + before,
                                   changes.new_bits.data() + before);
        });
    }
}

}  // namespace wisp
