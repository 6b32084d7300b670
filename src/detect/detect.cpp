#include "detect/detect.hpp"

#include <algorithm>

#include "kernel/scatter.hpp"

namespace wisp {
namespace {

// What was compared is read again at the changes; in pieces of this size it is still in cache.
constexpr std::size_t kPieceElements = 1U << 15;

}  // namespace

void Detector::detect(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                      const BlockRange& range, const TensorSeed& seed, bool digest_old,
                      DetectedBlock& found) {
    const Kernels& kernels = active_kernels();
    const std::size_t width = range.element_bytes;
    const auto count = static_cast<std::size_t>(range.element_count);
    positions_.resize(std::min(count, kPieceElements));
    found.old_state = {};
    found.touched = {};
    BlockChanges& changes = found.changes;
    changes.clear();
    changes.element_bytes = range.element_bytes;
    ScanDigest digest{digest_old ? &seed : nullptr, 0, &found.old_state};
    for (std::size_t first = 0; first < count; first += kPieceElements) {
        const std::size_t size = std::min(kPieceElements, count - first);
        const std::byte* const old_piece = old_block.data() + first * width;
        const std::byte* const new_piece = new_block.data() + first * width;
        digest.first_word = range.first_word() + first * width / 8;
        const std::size_t changed = kernels.scan(old_piece, new_piece, size, range.element_bytes,
                                                 positions_.data(), digest);
        const std::size_t before = changes.count();
        const std::span<const std::uint32_t> positions(positions_.data(), changed);
        changes.old_bits.resize((before + changed) * width);
        changes.new_bits.resize((before + changed) * width);
        gather(old_piece, positions, range.element_bytes, changes.old_bits.data() + before * width);
        gather(new_piece, positions, range.element_bytes, changes.new_bits.data() + before * width);
        changes.positions.resize(before + changed);
        std::ranges::transform(
            positions, changes.positions.begin() + static_cast<std::ptrdiff_t>(before),
            [&](std::uint32_t position) { return position + static_cast<std::uint32_t>(first); });
        found.touched += touched_sums_from(before, old_block, changes, seed, range.first_word());
    }
}

}  // namespace wisp
