// Which class an element belongs to: its old exponent, held inside a window of at most 16 binades.
//
// The chance that a weight changes halves with every binade of its magnitude; the receiver holds
// the old value and so knows the class for free. Below and above the window exponents are merged.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "wisp/dtype.hpp"

namespace wisp {

inline constexpr unsigned kMaxClasses = 16;

struct ClassWindow {
    unsigned shift = 0;
    std::uint32_t mask = 0;  // of the exponent field, after the shift; 0: all are of class 0
    std::uint32_t low = 0;   // the exponent of class 0
    std::uint32_t top = 0;   // the highest class

    std::uint32_t exponent_of(std::uint64_t bits) const {
        return static_cast<std::uint32_t>(bits >> shift) & mask;
    }
    std::uint32_t class_of(std::uint64_t bits) const {
        return std::min(std::max(exponent_of(bits), low) - low, top);
    }
};

inline ClassWindow exponent_field(const DtypeTraits& traits) {
    return {traits.exponent_shift, (1U << traits.exponent_bits) - 1, 0, 0};
}

/// The hazard weight of each class, at most kMaxWeight; bytes apart, as the vector kernels want.
inline constexpr std::uint32_t kMaxWeight = 30720;

struct WeightTable {
    std::array<std::uint8_t, kMaxClasses> low_bytes{};
    std::array<std::uint8_t, kMaxClasses> high_bytes{};

    void set(std::size_t index, std::uint32_t weight) {
        low_bytes[index] = static_cast<std::uint8_t>(weight & 0xFF);
        high_bytes[index] = static_cast<std::uint8_t>(weight >> 8);
    }
    std::uint32_t operator[](std::size_t index) const {
        return low_bytes[index] | (static_cast<std::uint32_t>(high_bytes[index]) << 8);
    }
};

}  // namespace wisp
