#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "codec/hazard.hpp"
#include "kernel/element_class.hpp"

namespace wisp {
namespace {

void expect_unit_is_found(std::uint64_t distance, unsigned shift) {
    const std::uint32_t begin = slot_of(distance, shift);
    const std::uint32_t end = slot_of(distance + 1, shift);
    ASSERT_LT(begin, end) << "unit " << distance << " has no slot, shift " << shift;
    ASSERT_EQ(distance_at(begin, shift), distance) << "shift " << shift;
    ASSERT_EQ(distance_at(end - 1, shift), distance) << "shift " << shift;
}

TEST(HazardCurve, IsTheRoundedExponential) {
    for (unsigned j = 0; j <= kSegmentCount; ++j) {
        EXPECT_EQ(kCumulative[j], std::llround(std::ldexp(1 - std::exp(j / -8.0), 30))) << j;
    }
}

TEST(HazardCurve, GivesEveryUnitItsOwnSlots) {
    for (unsigned shift = kMinHazardShift; shift <= 12; ++shift) {
        for (std::uint64_t d = 0; d < bucket_units(shift); ++d) {
            ASSERT_NO_FATAL_FAILURE(expect_unit_is_found(d, shift));
        }
    }
}

TEST(HazardCurve, GivesEveryUnitItsOwnSlotsAtLargeShifts) {
    std::mt19937_64 rng(1);
    for (unsigned shift = 13; shift <= kMaxHazardShift; ++shift) {
        for (int i = 0; i < 20'000; ++i) {
            ASSERT_NO_FATAL_FAILURE(expect_unit_is_found(rng() % bucket_units(shift), shift));
        }
        for (std::uint64_t segment = 0; segment < kSegmentCount; ++segment) {
            const std::uint64_t border = segment << (shift - 3);
            ASSERT_NO_FATAL_FAILURE(expect_unit_is_found(border, shift));
            if (border == 0) continue;
            ASSERT_NO_FATAL_FAILURE(expect_unit_is_found(border - 1, shift));
        }
        ASSERT_NO_FATAL_FAILURE(expect_unit_is_found(bucket_units(shift) - 1, shift));
    }
}

TEST(HazardCurve, EndsWhereTheEscapeBegins) {
    for (unsigned shift = kMinHazardShift; shift <= kMaxHazardShift; ++shift) {
        EXPECT_EQ(slot_of(0, shift), 0U);
        EXPECT_EQ(slot_of(bucket_units(shift), shift), kEscapeStart);
        EXPECT_EQ(distance_at(kEscapeStart - 1, shift), bucket_units(shift) - 1);
    }
    EXPECT_EQ(kEscapeStart + kEscapeFrequency, 1U << kHazardBits);
}

TEST(HazardCurve, FindsTheUnitOfEveryRandomSlot) {
    std::mt19937_64 rng(2);
    for (int i = 0; i < 200'000; ++i) {
        const unsigned shift = kMinHazardShift + static_cast<unsigned>(rng() % 22);
        const auto slot = static_cast<std::uint32_t>(rng() % kEscapeStart);
        const std::uint64_t d = distance_at(slot, shift);
        ASSERT_LE(slot_of(d, shift), slot);
        ASSERT_GT(slot_of(d + 1, shift), slot);
    }
}

TEST(WeightCode, AscendsAndIsItsOwnNearest) {
    EXPECT_EQ(weight_of_code(0), 0U);
    EXPECT_EQ(weight_of_code(kMaxWeightCode), kMaxWeight);
    for (std::uint32_t code = 1; code <= kMaxWeightCode; ++code) {
        EXPECT_GT(weight_of_code(code), weight_of_code(code - 1));
        EXPECT_EQ(code_of_weight(weight_of_code(code)), code);
    }
}

TEST(WeightCode, IsTheNearestToAnyWeight) {
    std::mt19937_64 rng(3);
    std::uniform_real_distribution<double> exponent(-3, 16);
    for (int i = 0; i < 20'000; ++i) {
        const double weight = std::exp2(exponent(rng));
        const std::uint32_t code = code_of_weight(weight);
        ASSERT_GE(code, 1U) << "never zero: what changed has weight";
        ASSERT_LE(code, kMaxWeightCode);
        const double off = std::abs(weight_of_code(code) - weight);
        for (const std::uint32_t other : {code - 1, code + 1}) {
            if (other < 1 || other > kMaxWeightCode) continue;
            ASSERT_LE(off, std::abs(weight_of_code(other) - weight));
        }
    }
}

}  // namespace
}  // namespace wisp
