#include <gtest/gtest.h>

#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"
#include "kernel/touched.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

class TouchedSumsOf : public ::testing::TestWithParam<Dtype> {};

TEST_P(TouchedSumsOf, MoveTheDigestFromOldToNew) {
    const DtypeTraits& traits = traits_of(GetParam());
    Rng rng(7);
    const TensorSeed seed{rng(), rng()};
    for (const std::size_t count : {1U, 2U, 3U, 7U, 8U, 9U, 63U, 64U, 65U, 1001U, 30'001U}) {
        for (const double share : {0.0, 0.01, 0.3, 1.0}) {
            const Bytes old_block = random_block(traits, Content::kRandom, count, rng);
            const Bytes new_block =
                changed_copy(old_block, traits, share, Change::kRandomBits, rng);
            BlockChanges changes;
            changes.element_bytes = traits.element_bytes;
            changes.positions.resize(count);
            changes.positions.resize(kReferenceKernels.scan(old_block.data(), new_block.data(),
                                                            count, traits.element_bytes,
                                                            changes.positions.data(), {}));
            gather_bits(old_block.data(), new_block.data(), changes);
            const std::uint64_t first_word = rng() % 1000;
            const TouchedSums sums = touched_sums(old_block, changes, seed, first_word);
            const auto digest = [&](const Bytes& block) {
                return kReferenceKernels.mix_bytes(block.data(), block.size(), seed, first_word);
            };
            ASSERT_EQ(digest(old_block) - sums.before + sums.after, digest(new_block));
            // Word by word: only those that hold a change count, each once.
            StateDigest before;
            for (std::size_t at = 0; at < old_block.size(); at += 8) {
                const std::uint64_t word = load_word(old_block.data(), at, old_block.size());
                if (word == load_word(new_block.data(), at, new_block.size())) continue;
                before += mix_word(seed, first_word + at / 8, word);
            }
            ASSERT_EQ(sums.before, before);
        }
    }
}

TEST_P(TouchedSumsOf, AreTheSameWhetherEarlierChangesWereWrittenOrLieOver) {
    const DtypeTraits& traits = traits_of(GetParam());
    Rng rng(9);
    const TensorSeed seed{rng(), rng()};
    const auto between = [&](const Bytes& from, const Bytes& to) {
        BlockChanges changes;
        changes.element_bytes = traits.element_bytes;
        changes.positions.resize(501);
        changes.positions.resize(kReferenceKernels.scan(
            from.data(), to.data(), 501, traits.element_bytes, changes.positions.data(), {}));
        gather_bits(from.data(), to.data(), changes);
        return changes;
    };
    for (const double share : {0.01, 0.3, 1.0}) {
        const Bytes first = random_block(traits, Content::kRandom, 501, rng);
        const Bytes second = changed_copy(first, traits, share, Change::kRandomBits, rng);
        const Bytes third = changed_copy(second, traits, share, Change::kRandomBits, rng);
        const BlockChanges earlier = between(first, second);
        const BlockChanges step = between(second, third);
        const OverlaidBlock overlaid(first, &earlier);
        const TouchedSums sums = touched_sums(overlaid, step, seed, 5);
        const TouchedSums written = touched_sums(second, step, seed, 5);
        EXPECT_EQ(sums.before, written.before);
        EXPECT_EQ(sums.after, written.after);
        Bytes gathered(step.old_bits.size());
        overlaid.gather(step.positions, traits.element_bytes, gathered.data());
        EXPECT_EQ(gathered, step.old_bits);
    }
}

INSTANTIATE_TEST_SUITE_P(EveryWidth, TouchedSumsOf,
                         ::testing::Values(Dtype::kU8, Dtype::kBf16, Dtype::kF32, Dtype::kF64),
                         [](const auto& named) { return dtype_name(named.param); });

}  // namespace
}  // namespace wisp::testing
