#include <gtest/gtest.h>

#include "codec/block_decoder.hpp"
#include "codec/block_encoder.hpp"
#include "expect_result.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

struct Sample {
    const DtypeTraits* traits = nullptr;
    Bytes old_block;
    Bytes coded;
};

Sample make_sample(Dtype dtype, std::size_t count, double share, Change change, Rng& rng) {
    Sample sample;
    sample.traits = &traits_of(dtype);
    sample.old_block = random_block(*sample.traits, Content::kWeights, count, rng);
    const Bytes new_block = changed_copy(sample.old_block, *sample.traits, share, change, rng);
    const BlockChanges changes = changes_between(sample.old_block, new_block, *sample.traits);
    BlockEncoder().encode(sample.old_block, changes, *sample.traits, sample.coded);
    return sample;
}

std::vector<Sample> make_samples(Rng& rng) {
    std::vector<Sample> samples;
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kU8, Dtype::kF32, Dtype::kF64, Dtype::kF8E4M3}) {
        samples.push_back(make_sample(dtype, 300, 0.02, Change::kUlp, rng));
        samples.push_back(make_sample(dtype, 5000, 0.01, Change::kUlp, rng));
        samples.push_back(make_sample(dtype, 300, 0.05, Change::kRandomBits, rng));
        samples.push_back(make_sample(dtype, 1000, 1, Change::kUlp, rng));
    }
    return samples;
}

Bytes damaged(const Bytes& coded, Rng& rng) {
    Bytes bytes = coded;
    switch (rng() % 4) {
        case 0: bytes.resize(rng() % bytes.size()); break;
        case 1: bytes.insert(bytes.end(), 1 + rng() % 8, static_cast<std::byte>(rng())); break;
        default: break;
    }
    // Half of the damage near the front, where the parameters are.
    for (std::uint64_t i = 1 + rng() % 3; i > 0 && !bytes.empty(); --i) {
        const std::size_t reach =
            rng() % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 24);
        bytes[rng() % reach] = static_cast<std::byte>(rng());
    }
    return bytes;
}

void expect_sound(const BlockChanges& changes, const Sample& sample) {
    const std::size_t width = sample.traits->element_bytes;
    const std::size_t count = sample.old_block.size() / width;
    ASSERT_EQ(changes.element_bytes, width);
    ASSERT_EQ(changes.old_bits.size(), changes.count() * width);
    ASSERT_EQ(changes.new_bits.size(), changes.count() * width);
    for (std::size_t i = 0; i < changes.count(); ++i) {
        ASSERT_LT(changes.positions[i], count);
        ASSERT_TRUE(i == 0 || changes.positions[i - 1] < changes.positions[i]);
        ASSERT_EQ(std::memcmp(changes.old_bits.data() + i * width,
                              sample.old_block.data() + changes.positions[i] * width, width),
                  0);
        ASSERT_NE(std::memcmp(changes.old_bits.data() + i * width,
                              changes.new_bits.data() + i * width, width),
                  0);
    }
}

TEST(CorruptBlock, YieldsAnErrorOrSoundChanges) {
    Rng rng(2024);
    const std::vector<Sample> samples = make_samples(rng);
    BlockDecoder decoder;
    BlockChanges changes;
    std::size_t refused = 0;
    constexpr int kCases = 20'000;
    for (int i = 0; i < kCases; ++i) {
        const Sample& sample = samples[rng() % samples.size()];
        const Bytes bytes = damaged(sample.coded, rng);
        const auto result = decoder.decode(bytes, sample.old_block, *sample.traits, changes);
        if (result) {
            ASSERT_NO_FATAL_FAILURE(expect_sound(changes, sample)) << "case " << i;
        } else {
            ++refused;
            ASSERT_TRUE(result.error().kind == ErrorKind::kCorrupt ||
                        result.error().kind == ErrorKind::kUnsupported);
        }
    }
    EXPECT_GT(refused, kCases / 2) << "most damage is found without any digest";
}

TEST(CorruptBlock, IsRefusedWhenCutAnywhere) {
    Rng rng(7);
    for (const Sample& sample : make_samples(rng)) {
        BlockDecoder decoder;
        BlockChanges changes;
        const std::size_t step = 1 + sample.coded.size() / 200;
        for (std::size_t size = 1; size < sample.coded.size(); size += step) {
            const auto result = decoder.decode(std::span(sample.coded).first(size),
                                               sample.old_block, *sample.traits, changes);
            ASSERT_EQ(outcome_of(result), "corrupt") << size << " of " << sample.coded.size();
        }
    }
}

TEST(CorruptBlock, DecodesToNonsenseAtWorstOnAnotherBase) {
    Rng rng(8);
    for (const Sample& sample : make_samples(rng)) {
        BlockDecoder decoder;
        BlockChanges changes;
        for (int i = 0; i < 50; ++i) {
            Sample other = sample;
            other.old_block = random_block(
                *sample.traits, kAllContents[rng() % kAllContents.size()], rng() % 6000, rng);
            if (decoder.decode(sample.coded, other.old_block, *sample.traits, changes)) {
                ASSERT_NO_FATAL_FAILURE(expect_sound(changes, other));
            }
        }
    }
}

}  // namespace
}  // namespace wisp::testing
