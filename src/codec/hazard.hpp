// Where the next change is, as a distance in hazard: doc/format.md section 9.
//
// Give every element the weight of its class, proportional to -ln(1 - P(change)). Then the weight
// between one change and the next is exponentially distributed, whatever mixture of classes lies
// between, and one rANS symbol per change codes its position at the entropy of the mask given the
// exponents. A hazard of 1 is 2^shift units. The exponential is cut into buckets of 4 hazards; what
// lies beyond the bucket is one escape symbol, and the count starts again.
#pragma once

#include <array>
#include <cstdint>

#include "codec/rans.hpp"

namespace wisp {

inline constexpr unsigned kHazardBits = kPositionBits;  // a symbol is a slice of [0, 2^30)
inline constexpr unsigned kSegmentsPerHazard = 8;
inline constexpr unsigned kBucketHazards = 4;
inline constexpr unsigned kSegmentCount = kSegmentsPerHazard * kBucketHazards;
inline constexpr unsigned kMinHazardShift = 3;   // a segment is at least one unit
inline constexpr unsigned kMaxHazardShift = 24;  // every unit is worth at least one slot

/// round(2^30 (1 - exp(-j/8))): the cumulative distribution, straight lines in between. The last
/// one twice, so that the end of the bucket is no special case.
inline constexpr std::array<std::uint32_t, kSegmentCount + 2> kCumulative = {
    0,          126167990,  237510851,  335770580,  422484487,  499009241,  566542100,
    626139639,  678734282,  725148892,  766109641,  802257375,  834157639,  862309523,
    887153473,  909078182,  928426670,  945501651,  960570268,  973868277,  985603728,
    995960227,  1005099806, 1013165455, 1020283366, 1026564901, 1032108335, 1037000399,
    1041317630, 1045127574, 1048489837, 1051457023, 1054075556, 1054075556};

inline constexpr std::uint32_t kEscapeStart = kCumulative[kSegmentCount];
inline constexpr std::uint32_t kEscapeFrequency = (1U << kHazardBits) - kEscapeStart;

constexpr std::uint64_t bucket_units(unsigned shift) {
    return std::uint64_t{kBucketHazards} << shift;
}

/// The slot at which the unit `distance` begins, for 0 <= distance <= bucket_units(shift).
constexpr std::uint32_t slot_of(std::uint64_t distance, unsigned shift) {
    const unsigned segment_shift = shift - 3;  // log2 of kSegmentsPerHazard
    const std::uint64_t segment = distance >> segment_shift;
    const std::uint64_t inside = distance & ((std::uint64_t{1} << segment_shift) - 1);
    const std::uint64_t rise = kCumulative[segment + 1] - kCumulative[segment];
    return kCumulative[segment] + static_cast<std::uint32_t>((inside * rise) >> segment_shift);
}

namespace hazard_tables {

inline constexpr unsigned kGuessBits = 9;

/// The segment at the start of each 1/512 of the slots, each of which has one border at most: a
/// slot lies in that segment or in the next.
inline constexpr auto kFirstSegment = [] {
    std::array<std::uint8_t, 1U << kGuessBits> first{};
    std::uint8_t segment = 0;
    for (std::uint32_t i = 0; i < first.size(); ++i) {
        const std::uint32_t slot = i << (kHazardBits - kGuessBits);
        while (segment + 1U < kSegmentCount && kCumulative[segment + 1U] <= slot) ++segment;
        first[i] = segment;
    }
    return first;
}();

/// floor(2^64 / rise) of each segment, to divide by multiplying.
inline constexpr auto kInverseRise = [] {
    std::array<std::uint64_t, kSegmentCount> inverse{};
    for (std::size_t i = 0; i < kSegmentCount; ++i) {
        inverse[i] = ~std::uint64_t{0} / (kCumulative[i + 1] - kCumulative[i]);
    }
    return inverse;
}();

}  // namespace hazard_tables

/// The unit that `slot` belongs to: the largest distance with slot_of(distance) <= slot.
/// `slot` < kEscapeStart.
inline std::uint64_t distance_at(std::uint32_t slot, unsigned shift) {
    const unsigned segment_shift = shift - 3;
    std::size_t segment =
        hazard_tables::kFirstSegment[slot >> (kHazardBits - hazard_tables::kGuessBits)];
    segment += kCumulative[segment + 1] <= slot ? 1 : 0;
    const std::uint64_t rise = kCumulative[segment + 1] - kCumulative[segment];
    const std::uint64_t risen = std::uint64_t{slot} - kCumulative[segment] + 1;
    // The largest `inside` with (inside * rise) >> segment_shift < risen.
    const std::uint64_t limit = (risen << segment_shift) - 1;
    __extension__ using Wide = unsigned __int128;
    auto inside =
        static_cast<std::uint64_t>((Wide{limit} * hazard_tables::kInverseRise[segment]) >> 64);
    inside += limit - inside * rise >= rise ? 1 : 0;
    return (static_cast<std::uint64_t>(segment) << segment_shift) + inside;
}

/// Weights are written as codes of one byte, a tiny float with three bits after the point.
inline constexpr std::uint32_t kMaxWeightCode = 103;

constexpr std::uint32_t weight_of_code(std::uint32_t code) {
    return code < 8 ? code : (8 + (code & 7)) << ((code >> 3) - 1);
}

/// The code whose weight is nearest to `weight`, at least 1.
std::uint32_t code_of_weight(double weight);

}  // namespace wisp
