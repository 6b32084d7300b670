// Access to single elements and words of a tensor's bytes, whatever their width and alignment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.hpp"

namespace wisp {

template <class T>
T load_element(const std::byte* bits, std::size_t index) {
    return load_le<T>(bits + index * sizeof(T));
}

/// Calls body(T{}) with the unsigned type of that width: 1, 2, 4 or 8 bytes.
template <class Body>
auto with_element_type(unsigned element_bytes, Body&& body) {
    switch (element_bytes) {
        case 1: return body(std::uint8_t{});
        case 2: return body(std::uint16_t{});
        case 4: return body(std::uint32_t{});
        default: return body(std::uint64_t{});
    }
}

/// The word at byte `at`, padded with zeros past `size_bytes`.
inline std::uint64_t load_word(const std::byte* bytes, std::size_t at, std::size_t size_bytes) {
    // A copy of known length is one instruction; the short last word alone needs the call.
    if (at + 8 <= size_bytes) return load_le<std::uint64_t>(bytes + at);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, size_bytes - at);
    return word;
}

/// The lowest bit, in its word, of the element at a position.
template <class T>
unsigned lane_shift(std::uint32_t position) {
    return position % (8 / sizeof(T)) * 8 * static_cast<unsigned>(sizeof(T));
}

/// The word with other bits in the place of the element at a position.
template <class T>
std::uint64_t with_lane(std::uint64_t word, std::uint32_t position, T bits) {
    const unsigned shift = lane_shift<T>(position);
    const std::uint64_t lane = std::uint64_t{static_cast<T>(~T{0})} << shift;
    return (word & ~lane) | (std::uint64_t{bits} << shift);
}

}  // namespace wisp
