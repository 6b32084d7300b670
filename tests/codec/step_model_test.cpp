#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "codec/step_model.hpp"
#include "kernel/value_order.hpp"

namespace wisp {
namespace {

struct Written {
    std::uint32_t element_class;
    StepModel::Step step;
};

Bytes stream_of(const std::vector<Written>& steps) {
    RansWriter writer;
    StepModel model;
    for (const Written& each : steps) model.put(writer, each.element_class, each.step);
    Bytes out;
    writer.finish(out);
    return out;
}

void expect_round_trip(const std::vector<Written>& steps, unsigned width) {
    const Bytes stream = stream_of(steps);
    RansReader reader(stream);
    StepModel model;
    bool overlong = false;
    for (const Written& each : steps) {
        const StepModel::Step got = model.take(reader, each.element_class, width, overlong);
        ASSERT_EQ(got.magnitude, each.step.magnitude) << "width " << width;
        ASSERT_EQ(got.negative, each.step.negative) << "width " << width;
    }
    EXPECT_FALSE(overlong);
    EXPECT_TRUE(reader.finished());
}

TEST(StepModel, ReadsBackExtremeMagnitudesOfEveryWidth) {
    for (const unsigned width : {8U, 16U, 32U, 64U}) {
        std::vector<Written> steps;
        for (unsigned bit = 0; bit < width; ++bit) {
            const std::uint64_t power = std::uint64_t{1} << bit;
            for (const std::uint64_t magnitude :
                 {power, power | 1, power | power >> 1, power - 1}) {
                if (magnitude == 0) continue;
                for (const bool negative : {false, true}) {
                    steps.push_back({bit % kMaxClasses, {magnitude, negative}});
                }
            }
        }
        const std::uint64_t all_ones = width == 64 ? ~0ULL : (1ULL << width) - 1;
        steps.push_back({15, {all_ones, true}});
        expect_round_trip(steps, width);
    }
}

TEST(StepModel, ReadsBackLongRunsThatDriveTheBitsToTheirLimits) {
    std::vector<Written> steps(20'000, {0, {1, false}});
    steps.push_back({0, {12345, true}});
    for (int i = 0; i < 20'000; ++i) steps.push_back({0, {3000, (i & 1) != 0}});
    steps.push_back({0, {1, true}});
    expect_round_trip(steps, 16);
}

TEST(StepModel, ReadsBackRandomSteps) {
    std::mt19937_64 rng(9);
    for (const unsigned width : {8U, 16U, 32U, 64U}) {
        std::vector<Written> steps;
        for (int i = 0; i < 5000; ++i) {
            const std::uint64_t magnitude = rng() >> (64 - width) >> (rng() % width);
            steps.push_back({static_cast<std::uint32_t>(rng() % kMaxClasses),
                             {std::max<std::uint64_t>(magnitude, 1), (rng() & 1) != 0}});
        }
        expect_round_trip(steps, width);
    }
}

TEST(StepModel, RejectsAStepLongerThanItsElement) {
    for (const unsigned width : {8U, 16U, 32U}) {
        const Bytes stream = stream_of({{0, {std::uint64_t{1} << width, false}}});
        RansReader reader(stream);
        StepModel model;
        bool overlong = false;
        model.take(reader, 0, width, overlong);
        EXPECT_TRUE(overlong) << width;
    }
}

TEST(AdaptiveBit, StaysEvenAndInsideItsLimits) {
    std::mt19937_64 rng(4);
    for (const unsigned ones : {0U, 1U, 50U, 99U, 100U}) {
        AdaptiveBit bit;
        for (int i = 0; i < 5000; ++i) {
            ASSERT_EQ(bit.one() % 2, 0U);
            ASSERT_GE(bit.one(), 16U);
            ASSERT_LE(bit.one(), AdaptiveBit::kTotal - 16);
            bit.learn(rng() % 100 < ones);
        }
        EXPECT_NEAR(bit.one() / 65536.0, ones / 100.0, 0.12);
    }
}

TEST(ValueOrder, PutsFloatsInTheOrderOfTheirValues) {
    const ValueOrder<std::uint32_t> order(true);
    std::mt19937_64 rng(6);
    for (int i = 0; i < 50'000; ++i) {
        const auto x = static_cast<std::uint32_t>(rng());
        const auto y = static_cast<std::uint32_t>(rng());
        ASSERT_EQ(order(order(x)), x);
        const float fx = std::bit_cast<float>(x);
        const float fy = std::bit_cast<float>(y);
        if (!(fx < fy)) continue;
        ASSERT_LT(static_cast<std::int32_t>(order(x)), static_cast<std::int32_t>(order(y)));
    }
}

TEST(ValueOrder, LeavesIntegersAlone) {
    const ValueOrder<std::uint8_t> order(false);
    for (unsigned bits = 0; bits < 256; ++bits) {
        EXPECT_EQ(order(static_cast<std::uint8_t>(bits)), bits);
    }
}

}  // namespace
}  // namespace wisp
