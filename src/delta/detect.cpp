#include "delta/detect.hpp"

#include <algorithm>

#include "kernel/scatter.hpp"

namespace wisp {

void Detector::find(std::span<const std::byte> old_part, std::span<const std::byte> new_part,
                    std::size_t first, const BlockRange& range, const ScanDigest& digest,
                    BlockChanges& changes) {
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
        const std::size_t before = changes.count();
        find(old_block.subspan(first * width, size), new_block.subspan(first * width, size), first,
             range, digest, changes);
        changes.old_bits.resize(changes.new_bits.size());
        gather(old_block.data(), std::span(changes.positions).subspan(before), range.element_bytes,
               changes.old_bits.data() + before * width);
        found.touched += touched_sums_from(before, old_block, changes, seed, range.first_word());
    }
}

}  // namespace wisp
