#include <algorithm>
#include <cstring>

#include "delta/delta_decoder.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

/// Calls take(position, entry) for the entries inside [begin, end), for sorted indices.
template <class T, class Take>
void walk_indices(const DeltaTensor& tensor, std::uint64_t begin, std::uint64_t end, Take&& take) {
    const auto at = [&](std::size_t k) {
        return static_cast<std::uint64_t>(load_le<T>(tensor.positions.data() + k * sizeof(T)));
    };
    std::size_t low = 0;
    std::size_t high = static_cast<std::size_t>(tensor.changed_elements);
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (at(middle) < begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < tensor.changed_elements && at(low) < end; ++low) take(at(low), low);
}

template <class T, class Take>
void walk_gaps(const DeltaTensor& tensor, std::uint64_t begin, std::uint64_t end, Take&& take) {
    const auto after = std::ranges::upper_bound(tensor.gap_marks, begin);
    const std::size_t mark = after == tensor.gap_marks.begin()
                                 ? 0
                                 : static_cast<std::size_t>(after - tensor.gap_marks.begin()) - 1;
    std::uint64_t next = tensor.gap_marks[mark];
    for (std::size_t k = mark * kGapMark; k < tensor.changed_elements; ++k) {
        const std::uint64_t position = next + load_le<T>(tensor.positions.data() + k * sizeof(T));
        if (position >= end) break;
        if (position >= begin) take(position, k);
        next = position + 1;
    }
}

}  // namespace

void decode_trl(const DeltaTensor& tensor, const BlockRange& range,
                std::span<const std::byte> old_block, BlockChanges& changes) {
    const std::uint64_t begin = range.first_element;
    const std::uint64_t end = begin + range.element_count;
    const unsigned width = range.element_bytes;
    const auto take = [&](std::uint64_t position, std::size_t entry) {
        const std::byte* bits = tensor.values.data() + entry * width;
        const auto offset = static_cast<std::size_t>(position - begin);
        const std::byte* old_bits = old_block.data() + offset * width;
        // TRL lists every NaN as changed, since it compares floats.
        if (std::memcmp(bits, old_bits, width) == 0) return;
        changes.positions.push_back(static_cast<std::uint32_t>(offset));
        changes.old_bits.insert(changes.old_bits.end(), old_bits, old_bits + width);
        changes.new_bits.insert(changes.new_bits.end(), bits, bits + width);
    };
    switch (tensor.coding) {
        case PositionCoding::kIndex32: walk_indices<std::int32_t>(tensor, begin, end, take); break;
        case PositionCoding::kIndex64: walk_indices<std::int64_t>(tensor, begin, end, take); break;
        case PositionCoding::kGap16: walk_gaps<std::uint16_t>(tensor, begin, end, take); break;
        case PositionCoding::kGap32: walk_gaps<std::uint32_t>(tensor, begin, end, take); break;
    }
}

}  // namespace wisp
