// Byte frequencies of a split block: order-0 statistics of the byte that holds the exponent.
//
// Each element's bits are rotated left by one, which brings the sign down and the exponent to the
// top; the highest byte is entropy-coded, the others are kept. doc/format.md section 11.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/bytes.hpp"
#include "wisp/result.hpp"

namespace wisp {

inline constexpr unsigned kSplitBits = 12;   // frequencies sum to 2^12
inline constexpr unsigned kSplitStates = 4;  // element i is coded by state i mod 4

template <class T>
constexpr T rotate_sign_down(T bits) {
    return std::rotl(bits, 1);
}
template <class T>
constexpr T rotate_sign_up(T bits) {
    return std::rotr(bits, 1);
}

struct SplitTable {
    std::array<std::uint16_t, 256> frequency{};
    std::array<std::uint16_t, 256> start{};

    /// Fills `start` from `frequency`.
    void accumulate();
    /// From counts of which at least one is not zero; every counted byte gets at least 1.
    static SplitTable from_counts(const std::array<std::uint64_t, 256>& counts);
};

void write_split_table(const SplitTable& table, Bytes& out);
Result<SplitTable> parse_split_table(ByteReader& in);

}  // namespace wisp
