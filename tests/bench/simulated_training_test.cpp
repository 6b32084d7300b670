#include "simulated_training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "delta/delta_writer.hpp"

namespace wisp::simulation {
namespace {

constexpr std::size_t kCount = (std::size_t{1} << 21) + 77;  // crosses chunks, ends in none
constexpr float kScale = 0.04F;

float value_of(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

std::vector<float> drawn(const Stretch& at = {5, 0}, std::size_t count = kCount) {
    std::vector<float> masters(count);
    draw_masters(at, kScale, masters);
    return masters;
}

std::vector<std::uint16_t> rounded(const std::vector<float>& masters) {
    std::vector<std::uint16_t> weights(masters.size());
    round_masters(masters, weights);
    return weights;
}

double share_changed(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
    std::size_t changed = 0;
    for (std::size_t i = 0; i < a.size(); ++i) changed += a[i] != b[i] ? 1 : 0;
    return static_cast<double>(changed) / static_cast<double>(a.size());
}

TEST(SimulatedTraining, WeightsAreTheNearestBf16ToTheirMasters) {
    std::vector<float> masters = drawn();
    for (std::uint64_t step = 1; step <= 3; ++step) step_masters({5, 0}, {}, step, masters);
    const auto weights = rounded(masters);
    for (std::size_t i = 0; i < masters.size(); ++i) {
        const double master = masters[i];
        const double distance = std::abs(master - value_of(weights[i]));
        for (const int beside : {-1, 1}) {
            const auto other = static_cast<std::uint16_t>(weights[i] + beside);
            ASSERT_LT(distance, std::abs(master - value_of(other))) << i;
        }
    }
}

TEST(SimulatedTraining, SplitMastersAreTheSameAsWholeOnes) {
    std::vector<float> masters = drawn();
    std::vector<std::uint16_t> weights = rounded(masters);
    std::vector<std::uint16_t> low(kCount);
    std::vector<std::uint16_t> next(kCount);
    keep_low_bits(masters, low);
    // At a learning rate that moves weights far, past the time an element keeps its draw.
    const AdamW fast{.learning_rate = 1e-3F};
    for (std::uint64_t step = 1; step <= 20; ++step) {
        step_masters({5, 0}, fast, step, masters);
        step_split_masters({5, 0}, fast, step, weights, low, next);
        weights.swap(next);
        ASSERT_EQ(weights, rounded(masters)) << "step " << step;
    }
}

TEST(SimulatedTraining, AnyPartCanBeDoneByItself) {
    std::vector<float> whole = drawn();
    const std::size_t first = (std::size_t{1} << 20) - 13;
    std::vector<float> part = drawn({5, first}, 1000);
    for (std::uint64_t step = 1; step <= 17; ++step) {
        step_masters({5, 0}, {}, step, whole);
        step_masters({5, first}, {}, step, part);
    }
    for (std::size_t i = 0; i < part.size(); ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(part[i]),
                  std::bit_cast<std::uint32_t>(whole[first + i]));
    }
}

/// A move of |u| crosses a border of cells that are `ulp` wide with probability |u| / ulp.
double expected_share(const std::vector<float>& masters, double learning_rate) {
    // |z| of a normal distribution at the middle of each tenth of it.
    constexpr double kTenths[] = {0.063, 0.189, 0.319, 0.454, 0.598,
                                  0.755, 0.935, 1.150, 1.440, 1.960};
    double sum = 0;
    for (const float master : masters) {
        const double ulp = std::exp2(std::floor(std::log2(std::abs(master))) - 7);
        for (const double z : kTenths) sum += std::min(1.0, learning_rate * 0.22 * z / ulp);
    }
    return sum / 10 / static_cast<double>(masters.size());
}

TEST(SimulatedTraining, AStepChangesAsManyWeightsAsTheoryAndRealTrainingSay) {
    for (const float rate : {1e-6F, 1e-5F}) {
        std::vector<float> masters = drawn();
        const auto before = rounded(masters);
        const double expected = expected_share(masters, rate);
        step_masters({5, 0}, {.learning_rate = rate}, 1, masters);
        const double share = share_changed(before, rounded(masters));
        EXPECT_NEAR(share, expected, 0.05 * expected) << rate;
        // Of real runs at 1e-6, between 98 and 99.8 % of the weights stay.
        EXPECT_TRUE(rate != 1e-6F || (0.002 < share && share < 0.02)) << share;
    }
}

TEST(SimulatedTraining, ChangesHalveWithEachBinade) {
    std::vector<float> masters = drawn();
    const auto before = rounded(masters);
    step_masters({5, 0}, {}, 1, masters);
    const auto after = rounded(masters);
    double total[256] = {};
    double changed[256] = {};
    for (std::size_t i = 0; i < before.size(); ++i) {
        const unsigned exponent = (before[i] >> 7) & 0xFF;
        total[exponent] += 1;
        changed[exponent] += before[i] != after[i] ? 1 : 0;
    }
    for (unsigned exponent = 119; exponent <= 121; ++exponent) {
        const double ratio =
            (changed[exponent] / total[exponent]) / (changed[exponent + 1] / total[exponent + 1]);
        EXPECT_NEAR(ratio, 2.0, 0.4) << exponent;
    }
}

TEST(SimulatedTraining, MastersAccumulateWhatRoundingHides) {
    std::vector<float> masters = drawn();
    const std::vector<float> start = masters;
    const auto before = rounded(masters);
    step_masters({5, 0}, {}, 1, masters);
    const double once = share_changed(before, rounded(masters));
    for (std::uint64_t step = 2; step <= 8; ++step) step_masters({5, 0}, {}, step, masters);
    const double often = share_changed(before, rounded(masters));
    // Momentum: eight steps go nearly eight times as far, where eight of noise would go three.
    EXPECT_GT(often, 5 * once);
    EXPECT_LT(often, 8 * once);
    double moved = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
        moved += std::abs(static_cast<double>(masters[i]) - static_cast<double>(start[i]));
    }
    EXPECT_GT(moved / static_cast<double>(kCount), 5 * 0.17e-6);
}

TEST(SimulatedTraining, ModelHasTheShapeOfQwen3) {
    std::uint64_t elements = 0;
    for (const SimulatedTensor& tensor : qwen3_tensors(28)) {
        elements += element_count_of(tensor.info);
    }
    EXPECT_EQ(elements, 596'049'920U);
}

TEST(SimulatedTraining, SwiftTakesLessThanThirteenBitsWhereFewWeightsChange) {
    // A third of the usual rate: one weight in five hundred and sixty changes.
    std::vector<std::uint16_t> before(std::size_t{1} << kLog2BlockElements);
    std::vector<std::uint16_t> after(before.size());
    fill_pair({5, 0}, kScale, {.learning_rate = 3.1e-7F}, before, after);
    const double share = share_changed(before, after);
    EXPECT_NEAR(share, 0.0018, 0.0003);
    const TensorInfo tensor = {"w", Dtype::kBf16, {before.size()}};
    WriteWorker worker;
    const WrittenBlock written = encode_block(
        Codec::kSwift, tensor, {0, 0, before.size(), 2}, std::as_bytes(std::span(before)),
        std::as_bytes(std::span(after)), {1, 2}, worker, false);
    const double changed = share * static_cast<double>(before.size());
    EXPECT_LT(8 * static_cast<double>(written.encoded.coded.size()) / changed, 12.6);
}

}  // namespace
}  // namespace wisp::simulation
