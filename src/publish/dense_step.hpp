// From where on a copy of the new weights takes less time and memory than a list of what changed.
#pragma once

#include <algorithm>
#include <cstdint>

namespace wisp {

/// The longest list worth making for so many bytes of weights: one element in 24 of bf16.
inline std::uint64_t longest_list_bytes(std::uint64_t weight_bytes) {
    return std::max(weight_bytes / 6, std::uint64_t{1} << 20);
}

/// A position, the old bits and the new ones.
inline std::uint64_t list_bytes(std::uint64_t changed_elements, std::uint64_t element_bytes) {
    return changed_elements * (sizeof(std::uint32_t) + 2 * element_bytes);
}

}  // namespace wisp
