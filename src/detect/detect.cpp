#include "detect/detect.hpp"

#include "kernel/scatter.hpp"

namespace wisp {

void Detector::detect(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                      const BlockRange& range, const TensorSeed& seed, bool digest_old,
                      DetectedBlock& found) {
    const Kernels& kernels = active_kernels();
    const auto count = static_cast<std::size_t>(range.element_count);
    if (positions_.size() < count) positions_.resize(count);
    found.old_state = {};
    const std::size_t changed =
        digest_old
            ? kernels.find_changes_and_mix(old_block.data(), new_block.data(), count,
                                           range.element_bytes, positions_.data(), seed,
                                           range.first_word(), found.old_state)
            : kernels.find_changes(old_block.data(), new_block.data(), count, range.element_bytes,
                                   positions_.data());
    found.changes.element_bytes = range.element_bytes;
    found.changes.positions.assign(positions_.begin(),
                                   positions_.begin() + static_cast<std::ptrdiff_t>(changed));
    gather_new_bits(new_block.data(), found.changes);
    found.touched = touched_sums(old_block, found.changes, seed, range.first_word());
}

}  // namespace wisp
