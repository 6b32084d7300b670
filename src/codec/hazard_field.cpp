#include "codec/hazard_field.hpp"

#include <limits>

namespace wisp {

HazardField::HazardField(std::span<const std::byte> block, unsigned element_bytes,
                         const ExponentField& field, const SparseHeader& header)
    : block_(block.data()),
      element_bytes_(element_bytes),
      count_(block.size() / element_bytes),
      field_(field),
      window_(header.window),
      weights_(header.weights()),
      line_count_(block.size() / kLineBytes),
      lines_each_(std::min(line_count_ / static_cast<std::size_t>(header.change_count + 1) + 1,
                           kMostLinesEach)) {
    for (std::size_t i = 0; i < weight_of_.size(); ++i) {
        weight_of_[i] = weights_[window_.class_of(static_cast<std::uint8_t>(i))];
    }
    prepare(0);
}

void HazardField::prepare(std::size_t first) {
    chunk_first_ = first;
    group_ = 0;
    const std::size_t size = std::min(kChunk, count_ - first);
    const Kernels& kernels = active_kernels();
    kernels.take_exponents(block_ + first * element_bytes_, size, element_bytes_, field_,
                           exponents_.data());
    std::fill(exponents_.begin() + static_cast<std::ptrdiff_t>(size), exponents_.end(),
              std::uint8_t{0});
    std::array<std::uint32_t, kGroups> totals;
    kernels.weigh(exponents_.data(), kChunk, window_, weights_, sums_.data(), totals.data());
    // At most 4096 * kMaxWeight, so signed numbers do, which the plainest vectors can compare.
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < kGroups; ++i) {
        group_starts_[i] = sum;
        sum += static_cast<std::int32_t>(totals[i]);
    }
    group_starts_[kGroups] = sum;
    std::fill(group_starts_.begin() + kGroups + 1, group_starts_.end(),
              std::numeric_limits<std::int32_t>::max());
    if (size == kChunk) return;
    // What was weighed past the end counts as nothing: no point may be found there.
    std::int32_t end = 0;
    if (size > 0) {
        const Place last = at(first + size - 1);
        end = static_cast<std::int32_t>(last.start + last.weight - chunk_start_);
    }
    for (std::size_t i = size / 64 + 1; i <= kGroups; ++i) {
        group_starts_[i] = std::min(group_starts_[i], end);
    }
}

}  // namespace wisp
