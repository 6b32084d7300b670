#include <gtest/gtest.h>

#include "codec/block_decoder.hpp"
#include "codec/block_encoder.hpp"
#include "codec/block_layout.hpp"
#include "expect_result.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

Bytes encoded(const Bytes& old_block, const Bytes& new_block, const DtypeTraits& traits) {
    BlockEncoder encoder;
    Bytes coded;
    encoder.encode(old_block, changes_between(old_block, new_block, traits), traits, coded);
    return coded;
}

BlockKind kind_of(const Bytes& coded) {
    return static_cast<BlockKind>(coded.at(0));
}

TEST(BlockKinds, FewChangesAreSparse) {
    Rng rng(1);
    const Bytes old_block = random_block(kBf16, Content::kWeights, 50'000, rng);
    const Bytes new_block = changed_copy(old_block, kBf16, 0.005, Change::kUlp, rng);
    const Bytes coded = encoded(old_block, new_block, kBf16);
    EXPECT_EQ(kind_of(coded), BlockKind::kSparse);
    EXPECT_LT(coded.size(), 500U);
}

TEST(BlockKinds, WeightsThatAllChangedAreSplit) {
    Rng rng(2);
    const Bytes old_block = random_block(kBf16, Content::kWeights, 50'000, rng);
    const Bytes new_block = random_block(kBf16, Content::kWeights, 50'000, rng);
    const Bytes coded = encoded(old_block, new_block, kBf16);
    EXPECT_EQ(kind_of(coded), BlockKind::kSplit);
    EXPECT_LT(coded.size(), old_block.size());
}

TEST(BlockKinds, ManyChangesAreStepsOfEveryElement) {
    Rng rng(2);
    const Bytes old_block = random_block(kBf16, Content::kWeights, 50'000, rng);
    std::size_t before = 0;
    for (const double share : {0.1, 0.3, 0.6, 1.0}) {
        const Bytes new_block = changed_copy(old_block, kBf16, share, Change::kUlp, rng);
        const Bytes coded = encoded(old_block, new_block, kBf16);
        EXPECT_EQ(kind_of(coded), BlockKind::kSteps);
        // A yes or no for each, and a sign for those that changed.
        EXPECT_LT(static_cast<double>(coded.size()), 50'000 * (0.95 + share) / 8 + 1000);
        before = coded.size();
    }
    EXPECT_LT(before, 50'000U / 8 + 1000)
        << "where all changed there is nothing to say but the sign";
}

TEST(BlockKinds, NoiseIsRaw) {
    Rng rng(3);
    const Bytes old_block = random_block(kBf16, Content::kRandom, 50'000, rng);
    const Bytes new_block = random_block(kBf16, Content::kRandom, 50'000, rng);
    const Bytes coded = encoded(old_block, new_block, kBf16);
    EXPECT_EQ(kind_of(coded), BlockKind::kRaw);
    EXPECT_EQ(coded.size(), old_block.size() + 1);
}

TEST(BlockKinds, TheEncoderAppends) {
    Rng rng(4);
    const Bytes old_block = random_block(kBf16, Content::kWeights, 3000, rng);
    for (const double share : {0.01, 1.0}) {
        const Bytes new_block = changed_copy(old_block, kBf16, share, Change::kRandomBits, rng);
        const BlockChanges changes = changes_between(old_block, new_block, kBf16);
        BlockEncoder encoder;
        Bytes twice;
        encoder.encode(old_block, changes, kBf16, twice);
        encoder.encode(old_block, changes, kBf16, twice);
        Bytes expected = encoded(old_block, new_block, kBf16);
        const std::size_t once = expected.size();
        expected.resize(2 * once);
        std::copy_n(expected.begin(), once, expected.begin() + static_cast<std::ptrdiff_t>(once));
        EXPECT_EQ(twice, expected) << "and keeps nothing from the block before";
    }
}

TEST(BlockDecoder, TakesNoBytesAsNoChanges) {
    BlockDecoder decoder;
    BlockChanges changes;
    changes.positions = {1, 2, 3};
    EXPECT_EQ(outcome_of(decoder.decode({}, Bytes(64), kBf16, changes)), "ok");
    EXPECT_TRUE(changes.empty());
    EXPECT_EQ(changes.element_bytes, 2U);
}

TEST(BlockDecoder, RefusesUnknownKindsAsUnsupported) {
    BlockDecoder decoder;
    BlockChanges changes;
    for (const int kind : {0, 4, 6, 255}) {
        const Bytes coded = {static_cast<std::byte>(kind), std::byte{1}};
        EXPECT_EQ(outcome_of(decoder.decode(coded, Bytes(64), kBf16, changes)), "unsupported");
    }
}

TEST(BlockDecoder, RefusesARawBlockOfAnotherLength) {
    BlockDecoder decoder;
    BlockChanges changes;
    for (const std::size_t size : {0U, 62U, 63U, 65U, 128U}) {
        Bytes coded(1 + size);
        coded[0] = static_cast<std::byte>(BlockKind::kRaw);
        EXPECT_EQ(outcome_of(decoder.decode(coded, Bytes(64), kBf16, changes)), "corrupt");
    }
}

TEST(BlockDecoder, RefusesASplitBlockForMoreOrFewerElements) {
    Rng rng(5);
    const Bytes old_block = random_block(kBf16, Content::kWeights, 5000, rng);
    const Bytes coded = encoded(Bytes(10'000), old_block, kBf16);
    ASSERT_EQ(kind_of(coded), BlockKind::kSplit);
    BlockDecoder decoder;
    BlockChanges changes;
    for (const std::size_t count : {0U, 1U, 4999U, 5001U}) {
        EXPECT_EQ(outcome_of(decoder.decode(coded, Bytes(count * 2), kBf16, changes)), "corrupt");
    }
}

/// doc/format.md section 15.
TEST(BlockDecoder, ReadsTheExampleOfTheFormatPage) {
    constexpr std::array<int, 25> kExample = {0x01, 0x02, 0x02, 0x7e, 0x13, 0x00, 0x6f, 0xf4, 0x00,
                                              0x0b, 0xd8, 0xf2, 0x4e, 0xc5, 0x05, 0x00, 0x00, 0x47,
                                              0x80, 0xa4, 0x01, 0x60, 0x00, 0x00, 0x00};
    Bytes coded;
    for (const int byte : kExample) coded.push_back(static_cast<std::byte>(byte));
    Bytes old_block;
    for (unsigned i = 0; i < 64; ++i) {
        append_fixed(old_block, static_cast<std::uint16_t>(0x3F80 + 3 * i));
    }
    BlockDecoder decoder;
    BlockChanges changes;
    value_of(decoder.decode(coded, old_block, kBf16, changes));
    EXPECT_EQ(changes.positions, (std::vector<std::uint32_t>{5, 40}));
    EXPECT_EQ(load_element<std::uint16_t>(changes.new_bits.data(), 0), 0x3F80 + 15 + 1);
    EXPECT_EQ(load_element<std::uint16_t>(changes.new_bits.data(), 1), 0x3F80 + 120 - 2);
}

}  // namespace
}  // namespace wisp::testing
