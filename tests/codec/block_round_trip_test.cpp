// The central claim: what comes in equals what went out, bit for bit.
#include <gtest/gtest.h>

#include "codec/block_decoder.hpp"
#include "codec/block_encoder.hpp"
#include "delta/detect.hpp"
#include "expect_result.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

constexpr TensorSeed kSeed{1, 2};
constexpr std::array kShares = {0.0, 1e-4, 0.005, 0.1, 0.5, 0.98, 1.0};

class BlockRoundTrip : public ::testing::TestWithParam<Dtype> {
  protected:
    const DtypeTraits& traits() const { return traits_of(GetParam()); }

    DetectedBlock detect(const Bytes& old_block, const Bytes& new_block) {
        BlockRange range;
        range.element_bytes = traits().element_bytes;
        range.element_count = old_block.size() / traits().element_bytes;
        DetectedBlock found;
        detector_.detect(old_block, new_block, range, kSeed, true, found);
        return found;
    }

    void expect_round_trip(const Bytes& old_block, const Bytes& new_block) {
        const DetectedBlock found = detect(old_block, new_block);
        Bytes coded;
        encoder_.encode(old_block, found.changes, traits(), coded);
        ASSERT_NO_FATAL_FAILURE(expect_decodes_to(coded, old_block, found.changes));

        Bytes at_once;
        StateDigest old_state;
        BlockChanges kept;
        const EncodedDifference difference = encoder_.encode_difference(
            old_block, new_block, traits(), kSeed, {&kSeed, 0, &old_state}, 0, at_once, &kept);
        ASSERT_NO_FATAL_FAILURE(expect_decodes_to(at_once, old_block, found.changes));
        ASSERT_EQ(difference.changed_elements, found.changes.count());
        ASSERT_EQ(difference.touched.before, found.touched.before);
        ASSERT_EQ(difference.touched.after, found.touched.after);
        ASSERT_EQ(old_state, found.old_state);
        ASSERT_EQ(kept.positions, found.changes.positions);
        ASSERT_EQ(kept.new_bits, found.changes.new_bits);
    }

    void expect_decodes_to(const Bytes& coded, const Bytes& old_block,
                           const BlockChanges& changes) {
        BlockChanges decoded;
        const auto result = decoder_.decode(coded, old_block, traits(), decoded);
        ASSERT_TRUE(result.has_value()) << text_of(result);
        ASSERT_TRUE(decoded == changes);
        ASSERT_LE(coded.size(), old_block.size() + 64) << "never much larger than the block";
        ASSERT_EQ(coded.empty(), changes.empty());
    }

    Detector detector_;
    BlockEncoder encoder_;
    BlockDecoder decoder_;
};

TEST_P(BlockRoundTrip, GivesBackExactlyWhatChanged) {
    Rng rng(static_cast<std::uint64_t>(GetParam()) + 1);
    for (const std::size_t count : {1U, 2U, 7U, 64U, 1000U, 4096U, 4097U, 20'000U}) {
        for (const double share : kShares) {
            for (const Change change : kAllChanges) {
                const Bytes old_block = random_block(traits(), Content::kWeights, count, rng);
                const Bytes new_block = changed_copy(old_block, traits(), share, change, rng);
                ASSERT_NO_FATAL_FAILURE(expect_round_trip(old_block, new_block))
                    << count << " elements, share " << share << ", change " << int(change);
            }
        }
    }
}

TEST_P(BlockRoundTrip, GivesBackChangesOfOddContents) {
    Rng rng(static_cast<std::uint64_t>(GetParam()) + 1000);
    for (const Content content : kAllContents) {
        for (const double share : {0.0, 0.02, 0.7}) {
            for (const Change change : kAllChanges) {
                const Bytes old_block = random_block(traits(), content, 3000, rng);
                const Bytes new_block = changed_copy(old_block, traits(), share, change, rng);
                ASSERT_NO_FATAL_FAILURE(expect_round_trip(old_block, new_block))
                    << "content " << int(content) << ", share " << share;
            }
        }
    }
}

TEST_P(BlockRoundTrip, GivesBackChangesThatComeInClusters) {
    Rng rng(static_cast<std::uint64_t>(GetParam()) + 2000);
    const Bytes old_block = random_block(traits(), Content::kWeights, 30'000, rng);
    for (const std::size_t run : {1U, 10U, 1000U}) {
        Bytes new_block = old_block;
        for (const std::size_t first : {0U, 15'000U, 30'000U - 1000U}) {
            for (std::size_t i = first; i < first + run; ++i) {
                const std::uint64_t bits = element_of(old_block, traits(), i);
                store_element(new_block, traits(), i, ~bits);
            }
        }
        ASSERT_NO_FATAL_FAILURE(expect_round_trip(old_block, new_block)) << run;
    }
}

TEST_P(BlockRoundTrip, CodesNothingWhenNothingChanged) {
    Rng rng(3);
    const Bytes block = random_block(traits(), Content::kNans, 500, rng);
    ASSERT_NO_FATAL_FAILURE(expect_round_trip(block, block));
    EXPECT_TRUE(detect(block, block).changes.empty());
}

TEST_P(BlockRoundTrip, DetectsTheDigestsOnTheWay) {
    Rng rng(4);
    const Bytes old_block = random_block(traits(), Content::kWeights, 40'000, rng);
    const Bytes new_block = changed_copy(old_block, traits(), 0.01, Change::kUlp, rng);
    const DetectedBlock found = detect(old_block, new_block);
    const auto digest = [](const Bytes& block) {
        return kReferenceKernels.mix_bytes(block.data(), block.size(), kSeed, 0);
    };
    EXPECT_EQ(found.old_state, digest(old_block));
    EXPECT_EQ(found.old_state - found.touched.before + found.touched.after, digest(new_block));
}

std::vector<Dtype> all_dtypes() {
    std::vector<Dtype> dtypes;
    for (int code = 0; code < kDtypeCount; ++code) dtypes.push_back(static_cast<Dtype>(code));
    return dtypes;
}

INSTANTIATE_TEST_SUITE_P(EveryDtype, BlockRoundTrip, ::testing::ValuesIn(all_dtypes()),
                         [](const auto& named) { return dtype_name(named.param); });

TEST(Detector, ForgetsTheBlockBefore) {
    Rng rng(5);
    const DtypeTraits& wide = traits_of(Dtype::kF64);
    const Bytes large = random_block(wide, Content::kRandom, 5000, rng);
    const Bytes other = changed_copy(large, wide, 1, Change::kRandomBits, rng);
    Detector detector;
    DetectedBlock found;
    detector.detect(large, other, {0, 0, 5000, 8}, {}, true, found);
    EXPECT_EQ(found.changes.count(), 5000U);
    const Bytes small = {std::byte{1}, std::byte{2}, std::byte{3}};
    detector.detect(small, small, {0, 0, 3, 1}, {}, false, found);
    EXPECT_TRUE(found.changes.empty());
    EXPECT_EQ(found.changes.element_bytes, 1U);
    EXPECT_EQ(found.old_state, StateDigest{});
}

}  // namespace
}  // namespace wisp::testing
