#include "codec/hazard.hpp"

#include <algorithm>

#include "kernel/element_class.hpp"

namespace wisp {
namespace {

constexpr unsigned kGuessBits = 7;

/// The segment at the start of each 1/128 of the slots: where the search for a slot begins.
constexpr auto kFirstSegment = [] {
    std::array<std::uint8_t, 1U << kGuessBits> first{};
    std::uint8_t segment = 0;
    for (std::uint32_t i = 0; i < first.size(); ++i) {
        const std::uint32_t slot = i << (kHazardBits - kGuessBits);
        while (segment + 1U < kSegmentCount && kCumulative[segment + 1U] <= slot) ++segment;
        first[i] = segment;
    }
    return first;
}();

static_assert(weight_of_code(kMaxWeightCode) == kMaxWeight);
static_assert(kCumulative[kSegmentCount] - kCumulative[kSegmentCount - 1] >=
              1U << (kMaxHazardShift - 3));

}  // namespace

std::uint64_t distance_at(std::uint32_t slot, unsigned shift) {
    const unsigned segment_shift = shift - 3;
    std::size_t segment = kFirstSegment[slot >> (kHazardBits - kGuessBits)];
    while (kCumulative[segment + 1] <= slot) ++segment;
    const std::uint64_t rise = kCumulative[segment + 1] - kCumulative[segment];
    const std::uint64_t risen = std::uint64_t{slot} - kCumulative[segment] + 1;
    // The largest `inside` with (inside * rise) >> segment_shift < risen.
    const std::uint64_t inside = ((risen << segment_shift) - 1) / rise;
    return (static_cast<std::uint64_t>(segment) << segment_shift) + inside;
}

std::uint32_t code_of_weight(double weight) {
    std::uint32_t low = 1;
    std::uint32_t high = kMaxWeightCode;
    while (low < high) {
        const std::uint32_t middle = (low + high) / 2;
        const double border = (weight_of_code(middle) + weight_of_code(middle + 1)) / 2.0;
        if (weight <= border) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

}  // namespace wisp
