// Exponents as people read them: the power of two below a number.
#pragma once

#include "kernel/element_class.hpp"
#include "wisp/schema.hpp"

namespace wisp {

/// Whether elements are floating-point numbers with a sign, an exponent and a mantissa.
inline bool has_binades(Dtype dtype) {
    switch (dtype) {
        case Dtype::kF8E5M2:
        case Dtype::kF8E4M3:
        case Dtype::kF16:
        case Dtype::kBf16:
        case Dtype::kF32:
        case Dtype::kF64: return true;
        default: return false;
    }
}

/// `exponent` as ExponentField has it.
inline int binade_of(unsigned exponent, const DtypeTraits& traits) {
    const int zero = (1 << (traits.exponent_bits - 1)) - 1;
    return static_cast<int>(exponent) + static_cast<int>(exponent_field(traits).bias) - zero;
}

}  // namespace wisp
