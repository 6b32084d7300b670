// What comes in equals what went out, at once and in two phases.
#include <gtest/gtest.h>

#include <cmath>

#include "codec/block_layout.hpp"
#include "codec/gap_table.hpp"
#include "codec/swift_decoder.hpp"
#include "codec/swift_encoder.hpp"
#include "expect_result.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

class SwiftRoundTrip : public ::testing::TestWithParam<Dtype> {
  protected:
    const DtypeTraits& traits() const { return traits_of(GetParam()); }

    void expect_round_trip(const Bytes& old_block, const Bytes& new_block) {
        const BlockChanges changes = changes_between(old_block, new_block, traits());
        Bytes coded;
        encoder_.encode(old_block, changes, traits(), coded);
        ASSERT_EQ(coded.empty(), changes.empty());
        ASSERT_LE(coded.size(), old_block.size() + 1) << "never larger than the block and its kind";
        BlockChanges decoded;
        const auto result = decoder_.decode(coded, old_block, traits(), decoded);
        ASSERT_TRUE(result.has_value()) << text_of(result);
        ASSERT_TRUE(decoded == changes);
        ASSERT_NO_FATAL_FAILURE(expect_two_phases(coded, old_block, new_block, changes));
    }

    /// Positions without any base, values with the gathered old bits alone.
    void expect_two_phases(const Bytes& coded, const Bytes& old_block, const Bytes& new_block,
                           const BlockChanges& changes) {
        const std::size_t width = traits().element_bytes;
        std::vector<std::uint32_t> positions;
        const auto reading =
            read_swift_positions(coded, old_block.size() / width, traits(), positions);
        ASSERT_EQ(outcome_of(reading), "ok");
        const bool swift = !coded.empty() && static_cast<BlockKind>(coded[0]) == BlockKind::kSwift;
        if (swift || coded.empty()) {
            ASSERT_EQ(positions, changes.positions);
        }
        Bytes old_bits(positions.size() * width);
        Bytes new_bits(old_bits.size());
        gather(old_block.data(), positions, traits().element_bytes, old_bits.data());
        ASSERT_EQ(outcome_of(decoder_.values(*reading, old_bits, new_bits)), "ok");
        Bytes patched = old_block;
        scatter(positions, new_bits.data(), traits().element_bytes, patched.data());
        ASSERT_EQ(patched, new_block);
    }

    SwiftEncoder encoder_;
    SwiftDecoder decoder_;
};

TEST_P(SwiftRoundTrip, GivesBackExactlyWhatChanged) {
    Rng rng(static_cast<std::uint64_t>(GetParam()) + 1);
    for (const std::size_t count : {1U, 2U, 7U, 64U, 1000U, 4097U, 20'000U}) {
        for (const double share : {0.0, 1e-4, 0.005, 0.1, 0.5, 0.98, 1.0}) {
            for (const Change change : kAllChanges) {
                const Bytes old_block = random_block(traits(), Content::kWeights, count, rng);
                const Bytes new_block = changed_copy(old_block, traits(), share, change, rng);
                ASSERT_NO_FATAL_FAILURE(expect_round_trip(old_block, new_block))
                    << count << " elements, share " << share << ", change " << int(change);
            }
        }
    }
}

TEST_P(SwiftRoundTrip, GivesBackEveryContent) {
    Rng rng(static_cast<std::uint64_t>(GetParam()) + 1000);
    for (const Content content : kAllContents) {
        for (const double share : {0.01, 0.3}) {
            for (const Change change : kAllChanges) {
                const Bytes old_block = random_block(traits(), content, 3000, rng);
                const Bytes new_block = changed_copy(old_block, traits(), share, change, rng);
                ASSERT_NO_FATAL_FAILURE(expect_round_trip(old_block, new_block));
            }
        }
    }
}

TEST_P(SwiftRoundTrip, GivesBackNothingAndTheEnds) {
    Rng rng(3);
    const std::size_t count = 100'000;
    const Bytes block = random_block(traits(), Content::kNans, count, rng);
    ASSERT_NO_FATAL_FAILURE(expect_round_trip(block, block));
    ASSERT_NO_FATAL_FAILURE(expect_round_trip({}, {}));
    for (const std::vector<std::size_t>& where :
         {std::vector<std::size_t>{0}, {count - 1}, {0, count - 1}, {count - 2, count - 1}}) {
        Bytes changed = block;
        for (const std::size_t at : where) {
            store_element(changed, traits(), at, ~element_of(block, traits(), at));
        }
        ASSERT_NO_FATAL_FAILURE(expect_round_trip(block, changed));
    }
}

TEST_P(SwiftRoundTrip, GivesBackChangesThatComeInClusters) {
    Rng rng(static_cast<std::uint64_t>(GetParam()) + 2000);
    const Bytes old_block = random_block(traits(), Content::kWeights, 300'000, rng);
    for (const std::size_t run : {1U, 10U, 1000U}) {
        Bytes new_block = old_block;
        for (const std::size_t first : {150'000U, 300'000U - 1000U}) {
            for (std::size_t i = first; i < first + run; ++i) {
                store_element(new_block, traits(), i, element_of(old_block, traits(), i) ^ 1);
            }
        }
        ASSERT_NO_FATAL_FAILURE(expect_round_trip(old_block, new_block)) << run;
    }
}

std::vector<Dtype> swift_dtypes() {
    std::vector<Dtype> dtypes;
    for (int code = 0; code < kDtypeCount; ++code) dtypes.push_back(static_cast<Dtype>(code));
    return dtypes;
}

INSTANTIATE_TEST_SUITE_P(EveryDtype, SwiftRoundTrip, ::testing::ValuesIn(swift_dtypes()),
                         [](const auto& named) { return dtype_name(named.param); });

Bytes encoded(const Bytes& old_block, const Bytes& new_block) {
    Bytes coded;
    SwiftEncoder().encode(old_block, changes_between(old_block, new_block, kBf16), kBf16, coded);
    return coded;
}

TEST(SwiftKinds, FollowFromTheCountAndTheSteps) {
    Rng rng(5);
    const Bytes old_block = random_block(kBf16, Content::kWeights, 50'000, rng);
    const auto kind = [&](const Bytes& new_block) {
        return static_cast<BlockKind>(encoded(old_block, new_block).at(0));
    };
    for (const double share : {0.005, 0.02, 0.3, 1.0}) {
        EXPECT_EQ(kind(changed_copy(old_block, kBf16, share, Change::kUlp, rng)),
                  share < 0.1 ? BlockKind::kSwift : BlockKind::kSteps);
    }
    EXPECT_EQ(kind(random_block(kBf16, Content::kWeights, 50'000, rng)), BlockKind::kSplit);
    EXPECT_EQ(kind(random_block(kBf16, Content::kRandom, 50'000, rng)), BlockKind::kRaw);
}

TEST(SwiftEncoder, CostsTheEntropyOfThePositionsAndTheSteps) {
    Rng rng(6);
    const std::size_t count = 1 << 20;
    const Bytes old_block = random_block(kBf16, Content::kWeights, count, rng);
    for (const double share : {1e-4, 0.002, 0.0055, 0.03, 0.2, 0.5, 0.9}) {
        const Bytes new_block = changed_copy(old_block, kBf16, share, Change::kUlp, rng);
        const auto changes =
            static_cast<double>(changes_between(old_block, new_block, kBf16).count());
        const double p = changes / count;
        const double positions = -(std::log2(p) + (1 - p) / p * std::log2(1 - p));
        const auto bits = static_cast<double>(8 * encoded(old_block, new_block).size());
        EXPECT_LT(bits, changes * (positions + 1) * 1.01 + 400) << share;
    }
}

TEST(GapShape, KeepsQuotientsBetweenAnEighthAndAQuarterOfAChange) {
    for (const std::uint64_t changes : {1U, 3U, 700U, 5555U, 100'000U}) {
        const GapShape shape = GapShape::of(changes, 1 << 20);
        const double each =
            std::ldexp(static_cast<double>(changes), int(shape.low_bits)) / (1 << 20);
        EXPECT_TRUE(each > 0.125 && each <= 0.25) << changes;
        EXPECT_NEAR(shape.zero_chance, 256 * (1 - std::exp(-each)), 3) << changes;
    }
    EXPECT_EQ(GapShape::of(1 << 20, 1 << 20).zero_chance, 255U);
    EXPECT_EQ(GapShape::of(1 << 20, 1 << 20).low_bits, 0U);
}

TEST(QuotientTable, FillsItsSlotsWhateverTheChance) {
    for (unsigned chance = 1; chance < 256; ++chance) {
        const QuotientTable table(chance);
        ASSERT_GE(table.escape, 1U);
        std::uint32_t next = 0;
        for (unsigned i = 0; i <= table.escape; ++i) {
            ASSERT_EQ(table.start[i], next) << chance;
            ASSERT_GE(table.frequency[i], 1U) << chance;
            next += table.frequency[i];
        }
        ASSERT_EQ(next, 1U << kQuotientBits) << chance;
    }
}

}  // namespace
}  // namespace wisp::testing
