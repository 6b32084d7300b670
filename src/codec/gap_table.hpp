// How a swift block writes the gap before a change: doc/format.md section 12.
//
// The gap is cut in two. Its low bits are as good as random and stand as they are, at a fixed
// width, side by side. What is above them, the quotient, is geometrically distributed: one rANS
// symbol, by a table that follows from one byte, the chance of a quotient of zero. A table has room
// for a few quotients; the escape behind them counts as many, and the next symbol goes on.
#pragma once

#include <array>
#include <cstdint>

namespace wisp {

inline constexpr unsigned kQuotientBits = 12;
inline constexpr unsigned kMaxQuotients = 32;
inline constexpr unsigned kMaxLowBits = 24;  // no block has more elements than 2^24

struct GapShape {
    unsigned low_bits = 0;
    unsigned zero_chance = 1;  // of a quotient, in 1/256, from 1 to 255

    /// For so many changes among so many elements, at least one. Any shape decodes.
    static GapShape of(std::uint64_t changes, std::uint64_t elements);
};

/// The slices of the quotients from 0 to escape - 1, and of the escape.
struct QuotientTable {
    unsigned escape = 0;
    std::array<std::uint16_t, kMaxQuotients + 1> start{};
    std::array<std::uint16_t, kMaxQuotients + 1> frequency{};

    explicit QuotientTable(unsigned zero_chance) {
        constexpr std::uint32_t kTotal = 1U << kQuotientBits;
        std::uint32_t left = kTotal;
        for (; escape < kMaxQuotients && left * zero_chance >= 256; ++escape) {
            put(escape, kTotal - left, left * zero_chance / 256);
            left -= frequency[escape];
        }
        put(escape, kTotal - left, left);
    }

  private:
    void put(unsigned quotient, std::uint32_t from, std::uint32_t slots) {
        start[quotient] = static_cast<std::uint16_t>(from);
        frequency[quotient] = static_cast<std::uint16_t>(slots);
    }
};

}  // namespace wisp
