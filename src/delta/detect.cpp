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

/// How the digest moves where the parts differ, at most of each word once.
template <class T>
TouchedSums touched_between(const Parts& parts, std::span<const std::uint32_t> positions,
                            const TensorSeed& seed) {
    const std::size_t size = parts.old_part.size();
    if (positions.size() * 8 * sizeof(T) > size) {  // an eighth: whole vectors take less time
        return active_kernels()
            .compare(parts.old_part.data(), parts.new_part.data(), size / sizeof(T), sizeof(T),
                     seed, parts.first_word)
            .touched;
    }
    TouchedSums sums;
    std::size_t last = SIZE_MAX;
    for (const std::uint32_t position : positions) {
        const std::size_t word = position * sizeof(T) / 8;
        if (word == last) continue;
        last = word;
        const std::uint64_t index = parts.first_word + word;
        sums.before += mix_word(seed, index, load_word(parts.old_part.data(), word * 8, size));
        sums.after += mix_word(seed, index, load_word(parts.new_part.data(), word * 8, size));
    }
    return sums;
}

}  // namespace

std::span<const std::uint32_t> Detector::find(std::span<const std::byte> old_part,
                                              std::span<const std::byte> new_part,
                                              std::size_t first, const BlockRange& range,
                                              const ScanDigest& digest, BlockChanges& changes) {
    const std::size_t width = range.element_bytes;
    positions_.resize(kDetectElements);
    const std::size_t changed =
        active_kernels().scan(old_part.data(), new_part.data(), old_part.size() / width,
                              range.element_bytes, positions_.data(), digest);
    const std::size_t before = changes.count();
    const std::span<const std::uint32_t> positions(positions_.data(), changed);
    changes.new_bits.resize((before + changed) * width);
    gather(new_part.data(), positions, range.element_bytes,
           changes.new_bits.data() + before * width);
    changes.positions.resize(before + changed);
    std::ranges::transform(
        positions, changes.positions.begin() + static_cast<std::ptrdiff_t>(before),
        [&](std::uint32_t position) { return position + static_cast<std::uint32_t>(first); });
    return positions;
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
        const std::size_t before = changes.count();
        const auto positions = find(parts.old_part, parts.new_part, first, range, digest, changes);
        changes.old_bits.resize(changes.new_bits.size());
        gather(parts.old_part.data(), positions, range.element_bytes,
               changes.old_bits.data() + before * width);
        found.touched += with_element_type(range.element_bytes, [&]<class T>(T) {
            return touched_between<T>(parts, positions, seed);
        });
    }
}

}  // namespace wisp
