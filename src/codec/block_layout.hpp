// The first bytes of every coded block, shared by writer and reader: doc/format.md section 7.
//
//   block  := kind body
//   sparse := varint change_count, u8 classes - 1, u8 low exponent, u8 hazard shift,
//             u8 first weight code, nibbles of the other weight codes, rANS stream
//   raw    := the new elements
//   split  := frequency table, varint stream bytes, rANS stream, low bytes
#pragma once

#include <cstddef>
#include <cstdint>

namespace wisp {

enum class BlockKind : std::uint8_t {
    kSparse = 1,  // positions by hazard, values as steps, both relative to the old block
    kRaw = 2,     // every element as it is
    kSplit = 3,   // every element; the byte that holds the exponent entropy-coded
};

}  // namespace wisp
