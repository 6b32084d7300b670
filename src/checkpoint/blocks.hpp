// How tensors are cut into blocks: the unit of work, of coding and of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wisp/schema.hpp"

namespace wisp {

struct BlockRange {
    std::size_t tensor = 0;
    std::uint64_t first_element = 0;
    std::uint64_t element_count = 0;
    unsigned element_bytes = 1;

    /// Blocks start on whole words: their element count is a multiple of eight.
    std::uint64_t first_word() const { return first_element * element_bytes / 8; }
    std::span<const std::byte> of(std::span<const std::byte> tensor_bytes) const {
        return tensor_bytes.subspan(static_cast<std::size_t>(first_element * element_bytes),
                                    static_cast<std::size_t>(element_count * element_bytes));
    }
};

inline std::uint64_t block_count_of(std::uint64_t element_count, unsigned log2_block_elements) {
    return (element_count >> log2_block_elements) +
           ((element_count & ((std::uint64_t{1} << log2_block_elements) - 1)) != 0 ? 1 : 0);
}

/// Every block of every tensor, in order, without holding a list of them.
class BlockGrid {
  public:
    BlockGrid(const Schema& schema, unsigned log2_block_elements)
        : schema_(&schema), log2_(log2_block_elements) {
        first_.push_back(0);
        for (const TensorInfo& tensor : schema.tensors()) {
            first_.push_back(first_.back() + block_count_of(element_count_of(tensor), log2_));
        }
    }
    std::uint64_t count() const { return first_.back(); }
    /// The tensor's first block; of one past the last tensor: count().
    std::uint64_t first_of(std::size_t tensor) const { return first_[tensor]; }

    BlockRange operator[](std::uint64_t index) const {
        const auto after = std::ranges::upper_bound(first_, index);
        const auto tensor = static_cast<std::size_t>(after - first_.begin()) - 1;
        const TensorInfo& info = schema_->tensors()[tensor];
        BlockRange range;
        range.tensor = tensor;
        range.first_element = (index - first_[tensor]) << log2_;
        range.element_count =
            std::min(std::uint64_t{1} << log2_, element_count_of(info) - range.first_element);
        range.element_bytes = traits_of(info.dtype).element_bytes;
        return range;
    }

  private:
    const Schema* schema_;
    unsigned log2_;
    std::vector<std::uint64_t> first_;  // of each tensor, and one past the last
};

}  // namespace wisp
