// The element types of safetensors, and how wisp sees each: a width in bytes and an exponent field.
//
// wisp compares and codes *elements* of 1, 2, 4 or 8 bytes. For whole-byte types an element is the
// tensor's own element; the packed sub-byte types (F4, F6_*) are taken as bytes. The exponent field
// groups elements whose chance to change is alike; types without one have zero exponent bits.
// The enumerators' values are written into delta directories: doc/format.md section 6.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wisp {

enum class Dtype : std::uint8_t {
    kBool = 0,
    kF4 = 1,
    kF6E2M3 = 2,
    kF6E3M2 = 3,
    kU8 = 4,
    kI8 = 5,
    kF8E5M2 = 6,
    kF8E4M3 = 7,
    kF8E8M0 = 8,
    kF8E4M3Fnuz = 9,
    kF8E5M2Fnuz = 10,
    kI16 = 11,
    kU16 = 12,
    kF16 = 13,
    kBf16 = 14,
    kI32 = 15,
    kU32 = 16,
    kF32 = 17,
    kC64 = 18,
    kF64 = 19,
    kI64 = 20,
    kU64 = 21,
};

inline constexpr int kDtypeCount = 22;

struct DtypeTraits {
    std::string_view name;    // as safetensors spells it
    unsigned bits;            // of one logical element, packed types included
    unsigned element_bytes;   // of one wisp element: 1, 2, 4 or 8
    unsigned exponent_shift;  // position of the exponent field inside the element's bits
    unsigned exponent_bits;   // 0: the type has no exponent, all elements are of one class
    bool sign_magnitude;      // values are ordered as sign and magnitude, not as integers
};

const DtypeTraits& traits_of(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);
std::optional<Dtype> dtype_from_code(std::uint64_t code);

}  // namespace wisp
