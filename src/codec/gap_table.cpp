#include "codec/gap_table.hpp"

#include <algorithm>
#include <cmath>

namespace wisp {

GapShape GapShape::of(std::uint64_t changes, std::uint64_t elements) {
    GapShape shape;
    // Quotients from 1/8 to 1/4 of a change apart: below, they would need a larger table; above,
    // the low bits would no longer be even.
    while (changes << (shape.low_bits + 3) <= elements && shape.low_bits < kMaxLowBits) {
        ++shape.low_bits;
    }
    const double share = static_cast<double>(changes) / static_cast<double>(elements);
    const double still = std::pow(1 - share, static_cast<double>(1U << shape.low_bits));
    shape.zero_chance = static_cast<unsigned>(std::clamp(std::lround(256 * (1 - still)), 1L, 255L));
    return shape;
}

}  // namespace wisp
