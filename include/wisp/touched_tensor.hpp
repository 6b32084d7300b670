// What a step touches of weights that lie elsewhere, and how it is asked for.
#pragma once

#include <cstddef>

namespace wisp {

/// How many of a tensor's words, of 8 bytes each, a step touches.
struct TouchedTensor {
    std::size_t tensor = 0;  // in the order of the schema
    std::size_t words = 0;
};

/// Where the words of one tensor lie in the room for all: their indices, ascending, of 4 bytes
/// each and padded to a multiple of 8, then the words themselves.
constexpr std::size_t index_bytes_of(std::size_t words) {
    return (words * 4 + 7) / 8 * 8;
}
constexpr std::size_t room_bytes_of(std::size_t words) {
    return index_bytes_of(words) + words * 8;
}

}  // namespace wisp
