// Which class an element belongs to: its old exponent, held inside a window of at most 16 binades.
//
// The chance that a weight changes halves with every binade of its magnitude; the receiver holds
// the old value and so knows the class for free. Exponents are taken as bytes (those of F64, which
// are wider, are held to the 256 binades around one); below and above the window they are merged.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "wisp/schema.hpp"

namespace wisp {

inline constexpr unsigned kMaxClasses = 16;

/// Where the exponent of an element is, and what is taken off it to make it a byte.
struct ExponentField {
    unsigned shift = 0;
    std::uint32_t mask = 0;  // after the shift; 0: the type has no exponent
    std::uint32_t bias = 0;

    std::uint8_t of(std::uint64_t bits) const {
        const std::uint32_t exponent = static_cast<std::uint32_t>(bits >> shift) & mask;
        return static_cast<std::uint8_t>(
            std::min<std::uint32_t>(std::max(exponent, bias) - bias, 255));
    }
    std::uint32_t largest() const { return std::min<std::uint32_t>(mask, 255); }
};

inline ExponentField exponent_field(const DtypeTraits& traits) {
    const std::uint32_t mask = (1U << traits.exponent_bits) - 1;
    return {traits.exponent_shift, mask, mask > 255 ? 896U : 0U};
}

struct ClassWindow {
    std::uint8_t low = 0;  // the exponent of class 0
    std::uint8_t top = 0;  // the highest class

    std::uint8_t class_of(std::uint8_t exponent) const {
        // All of it in bytes, which vectors hold most of.
        const auto above = static_cast<std::uint8_t>(std::max(exponent, low) - low);
        return std::min(above, top);
    }
};

/// Exponents into classes, in place.
inline void classify(ClassWindow window, std::span<std::uint8_t> exponents) {
    for (std::uint8_t& exponent : exponents) exponent = window.class_of(exponent);
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
