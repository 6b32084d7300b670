#include "codec/hazard.hpp"

#include <algorithm>

#include "kernel/element_class.hpp"

namespace wisp {
namespace {

static_assert(weight_of_code(kMaxWeightCode) == kMaxWeight);
static_assert(kCumulative[kSegmentCount] - kCumulative[kSegmentCount - 1] >=
              1U << (kMaxHazardShift - 3));
// The last segment has the smallest rise.
static_assert(kCumulative[kSegmentCount] - kCumulative[kSegmentCount - 1] >=
              1U << (kHazardBits - hazard_tables::kGuessBits));

}  // namespace

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
