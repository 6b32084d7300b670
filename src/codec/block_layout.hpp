// The first bytes of every coded block, shared by writer and reader: doc/format.md section 7.
//
//   block  := kind body
//   sparse := varint change_count, u8 classes - 1, u8 low exponent, u8 hazard shift,
//             u8 first weight code, nibbles of the other weight codes, rANS stream
//   raw    := the new elements
//   split  := frequency table, varint stream bytes, rANS stream, low bytes
//   steps  := u8 classes - 1, u8 low exponent, a frequency table per class, varint stream bytes,
//             rANS stream, bits behind the tokens
//   swift  := varint change_count, u8 low bits, u8 chance of zero, varint single_from, low bits of
//             the gaps, a sign per change, rANS stream
#pragma once

#include <cstddef>
#include <cstdint>

namespace wisp {

enum class BlockKind : std::uint8_t {
    kSparse = 1,  // positions by hazard, values as steps, both relative to the old block
    kRaw = 2,     // every element as it is
    kSplit = 3,   // every element; the byte that holds the exponent entropy-coded
    kSwift = 4,   // positions as they are, values as steps relative to the old elements there
    kSteps = 5,   // every element, as its step from the old one; zero where nothing changed
};

}  // namespace wisp
