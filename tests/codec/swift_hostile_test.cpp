// Swift blocks that nobody wrote: each rule named when it is broken, and never a step outside.
#include <gtest/gtest.h>

#include "codec/block_layout.hpp"
#include "codec/gap_table.hpp"
#include "codec/step_model.hpp"
#include "codec/swift_decoder.hpp"
#include "codec/swift_encoder.hpp"
#include "expect_result.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

constexpr std::size_t kElements = 64;

/// A block byte by byte; what a test spoils it sets.
struct Crafted {
    std::uint64_t count = 1;
    unsigned low_bits = 2;
    unsigned zero_chance = 64;
    std::uint64_t single_from = 0x80;
    Bytes packed = {std::byte{1}};
    Bytes signs = {std::byte{0}};
    RansWriter rans;
    Bytes tail;

    void put_quotient(unsigned quotient, Lane lane = Lane::kPosition) {
        const QuotientTable table(zero_chance);
        rans.put_value(table.start[quotient], table.frequency[quotient], kQuotientBits, lane);
    }
    void put_lengths(std::uint64_t length = 1) {
        BinadeStepModel model;
        for (std::uint64_t i = 0; i < count; ++i) {
            const StepContext context = model.context(0x7F);
            if (i % 2 == 0) {
                put_length<Lane::kPosition>(rans, context, length);
            } else {
                put_length<Lane::kValue>(rans, context, length);
            }
        }
    }
    Bytes bytes() {
        Bytes out = {static_cast<std::byte>(BlockKind::kSwift)};
        append_varint(out, count);
        out.push_back(static_cast<std::byte>(low_bits));
        out.push_back(static_cast<std::byte>(zero_chance));
        append_varint(out, single_from);
        out.insert(out.end(), packed.begin(), packed.end());
        out.insert(out.end(), signs.begin(), signs.end());
        rans.finish(out);
        out.insert(out.end(), tail.begin(), tail.end());
        return out;
    }
};

std::string told(std::span<const std::byte> coded, std::size_t elements = kElements) {
    Bytes old_block;
    for (std::size_t i = 0; i < elements; ++i) append_fixed<std::uint16_t>(old_block, 0x3F80);
    SwiftDecoder decoder;
    BlockChanges changes;
    const auto result = decoder.decode(coded, old_block, kBf16, changes);
    return result ? "ok" : text_of(result);
}

TEST(SwiftHostile, TakesTheBlockThatIsNotSpoilt) {
    Crafted block;
    block.put_quotient(3);
    block.put_lengths();
    EXPECT_EQ(told(block.bytes()), "ok");
}

TEST(SwiftHostile, RefusesAPositionPastTheBlock) {
    Crafted block;  // the gap is 3 * 4 + 1
    block.put_quotient(3);
    block.put_lengths();
    const Bytes coded = block.bytes();
    EXPECT_EQ(told(coded, 14), "ok");
    EXPECT_EQ(told(coded, 13), "swift block: a position lies past the end of the block");
}

TEST(SwiftHostile, RefusesALaterPositionPastTheBlock) {
    Crafted block;
    block.count = 2;
    block.packed = {std::byte{0b0101}};
    block.put_quotient(3);
    block.put_quotient(12, Lane::kValue);
    block.put_lengths();
    const Bytes coded = block.bytes();
    EXPECT_EQ(told(coded, 64), "ok");
    EXPECT_EQ(told(coded, 63), "swift block: a position lies past the end of the block");
}

TEST(SwiftHostile, EndsEscapesThatGoOnForEver) {
    Crafted block;
    block.zero_chance = 1;  // an escape costs almost nothing
    const unsigned escape = QuotientTable(1).escape;
    for (int i = 0; i < 1'000'000; ++i) block.put_quotient(escape);
    block.put_quotient(0);
    block.put_lengths();
    EXPECT_EQ(told(block.bytes()), "swift block: a position lies past the end of the block");
}

TEST(SwiftHostile, RefusesCountsThatCannotBe) {
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{65}, ~std::uint64_t{0}}) {
        Crafted block;
        block.count = count;
        EXPECT_EQ(told(block.bytes()), "swift block: more changes than elements, or none");
    }
}

TEST(SwiftHostile, RefusesOneChangeMoreOrLessThanTheStreamHas) {
    for (const std::uint64_t count : {1U, 3U}) {
        Crafted block;
        block.count = 2;
        block.put_quotient(1);
        block.put_quotient(1, Lane::kValue);
        block.put_lengths();
        block.count = count;
        EXPECT_NE(told(block.bytes()), "ok") << count;
    }
}

TEST(SwiftHostile, RefusesShapesOutOfRange) {
    Crafted wide;
    wide.low_bits = 25;
    EXPECT_EQ(told(wide.bytes()), "swift block: more than 24 low bits");
    Crafted hopeless;
    hopeless.zero_chance = 0;
    EXPECT_EQ(told(hopeless.bytes()), "swift block: a quotient of zero has no chance");
    for (const std::uint64_t single_from : {std::uint64_t{257}, ~std::uint64_t{0}}) {
        Crafted high;
        high.single_from = single_from;
        EXPECT_EQ(told(high.bytes()), "swift block: an exponent above 256");
    }
}

TEST(SwiftHostile, TakesLengthsOfNoElementAtOrAboveSingleFrom) {
    Crafted silent;  // all exponents are 127
    silent.single_from = 0x7F;
    silent.put_quotient(3);
    EXPECT_EQ(told(silent.bytes()), "ok");
    silent.put_quotient(3);
    silent.put_lengths(2);
    EXPECT_EQ(told(silent.bytes()), "swift block: its stream does not end with its last change");
    Crafted missing;
    missing.put_quotient(3);
    EXPECT_NE(told(missing.bytes()), "ok");
}

TEST(SwiftHostile, RefusesSignsThatAreCutOrPadded) {
    Crafted padded;
    padded.signs = {std::byte{2}};
    padded.put_quotient(3);
    padded.put_lengths();
    EXPECT_EQ(told(padded.bytes()), "swift block: padding is not zero");
    Crafted cut;
    cut.count = kElements;
    cut.low_bits = 0;
    cut.packed.clear();
    cut.signs.resize(7);
    Bytes coded = cut.bytes();
    coded.resize(coded.size() - 16);  // both states
    EXPECT_EQ(told(coded), "swift block: ends inside its signs");
}

TEST(SwiftHostile, RefusesPaddingAndTrailingBytes) {
    Crafted padded;
    padded.packed = {std::byte{0x05}};
    padded.put_quotient(3);
    padded.put_lengths();
    EXPECT_EQ(told(padded.bytes()), "swift block: padding is not zero");
    for (const std::size_t more : {1U, 3U, 4U, 8U}) {
        Crafted block;
        block.put_quotient(3);
        block.put_lengths();
        block.tail.resize(more);
        EXPECT_NE(told(block.bytes()), "ok") << more;
    }
}

TEST(SwiftHostile, RefusesAStepLongerThanItsElement) {
    Crafted block;
    block.put_quotient(3);
    block.put_lengths(1 << 16);
    EXPECT_EQ(told(block.bytes()), "swift block: a step is longer than its element");
}

TEST(SwiftHostile, RefusesOtherKindsAsUnsupported) {
    SwiftDecoder decoder;
    BlockChanges changes;
    for (const int kind : {0, 1, 6, 255}) {
        const Bytes coded = {static_cast<std::byte>(kind), std::byte{1}};
        EXPECT_EQ(outcome_of(decoder.decode(coded, Bytes(64), kBf16, changes)), "unsupported");
    }
}

TEST(SwiftHostile, MakesNoRoomForADenseBlockTooShortForItsElements) {
    constexpr std::size_t kStateBytes = 128;
    const auto told_of = [](BlockKind kind, std::size_t body_bytes,
                            std::vector<std::uint32_t>& to) {
        Bytes coded(1 + body_bytes);
        coded[0] = static_cast<std::byte>(kind);
        const auto reading = read_swift_positions(coded, kElements, kBf16, to);
        return reading ? "ok" : text_of(reading);
    };
    std::vector<std::uint32_t> positions;
    const std::string raw = "dense block: raw, of another length";
    EXPECT_EQ(told_of(BlockKind::kRaw, 0, positions), raw);
    EXPECT_EQ(told_of(BlockKind::kRaw, kElements * 2 - 1, positions), raw);
    EXPECT_EQ(told_of(BlockKind::kRaw, kElements * 2 + 1, positions), raw);
    const std::string too_short = "dense block: its length does not fit its elements";
    EXPECT_EQ(told_of(BlockKind::kSplit, 0, positions), too_short);
    EXPECT_EQ(told_of(BlockKind::kSplit, kStateBytes + kElements - 1, positions), too_short);
    EXPECT_EQ(told_of(BlockKind::kSteps, 0, positions), too_short);
    EXPECT_EQ(told_of(BlockKind::kSteps, kStateBytes - 1, positions), too_short);
    EXPECT_EQ(positions.capacity(), 0U);
    EXPECT_EQ(told_of(BlockKind::kRaw, kElements * 2, positions), "ok");
    EXPECT_EQ(positions.size(), kElements);
}

struct SwiftSample {
    const DtypeTraits* traits = nullptr;
    Bytes old_block;
    Bytes coded;
};

std::vector<SwiftSample> make_swift_samples(Rng& rng) {
    std::vector<SwiftSample> samples;
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kU8, Dtype::kF32, Dtype::kF64, Dtype::kF8E4M3}) {
        for (const auto& [count, share, change] :
             {std::tuple{300, 0.02, Change::kUlp}, std::tuple{5000, 0.01, Change::kUlp},
              std::tuple{300, 0.05, Change::kRandomBits}, std::tuple{1000, 1.0, Change::kUlp}}) {
            SwiftSample sample;
            sample.traits = &traits_of(dtype);
            sample.old_block = random_block(*sample.traits, Content::kWeights, count, rng);
            const Bytes after = changed_copy(sample.old_block, *sample.traits, share, change, rng);
            SwiftEncoder().encode(sample.old_block,
                                  changes_between(sample.old_block, after, *sample.traits),
                                  *sample.traits, sample.coded);
            samples.push_back(std::move(sample));
        }
    }
    return samples;
}

void expect_sound_swift(const BlockChanges& changes, const SwiftSample& sample) {
    Bytes patched = sample.old_block;
    ASSERT_TRUE(changes.empty() ||
                changes.positions.back() < patched.size() / sample.traits->element_bytes);
    ASSERT_TRUE(std::ranges::is_sorted(changes.positions));
    scatter_new_bits(changes, patched.data());
    ASSERT_TRUE(changes_between(sample.old_block, patched, *sample.traits) == changes);
}

TEST(SwiftHostile, DamageYieldsAnErrorOrSoundChanges) {
    Rng rng(2024);
    const std::vector<SwiftSample> samples = make_swift_samples(rng);
    SwiftDecoder decoder;
    BlockChanges changes;
    std::size_t refused = 0;
    constexpr int kCases = 20'000;
    for (int i = 0; i < kCases; ++i) {
        const SwiftSample& sample = samples[rng() % samples.size()];
        Bytes bytes = sample.coded;
        if (rng() % 4 == 0) bytes.resize(1 + rng() % bytes.size());
        for (std::uint64_t n = 1 + rng() % 3; n > 0; --n) {
            const std::size_t reach =
                rng() % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 24);
            bytes[rng() % reach] = static_cast<std::byte>(rng());
        }
        const auto result = decoder.decode(bytes, sample.old_block, *sample.traits, changes);
        if (result) {
            ASSERT_NO_FATAL_FAILURE(expect_sound_swift(changes, sample)) << "case " << i;
        } else {
            ++refused;
            ASSERT_TRUE(result.error().kind == ErrorKind::kCorrupt ||
                        result.error().kind == ErrorKind::kUnsupported);
        }
    }
    EXPECT_GT(refused, kCases / 3) << "much damage is found without any digest";
}

TEST(SwiftHostile, IsRefusedWhenCutAnywhere) {
    Rng rng(7);
    for (const SwiftSample& sample : make_swift_samples(rng)) {
        SwiftDecoder decoder;
        BlockChanges changes;
        const std::size_t step = 1 + sample.coded.size() / 200;
        for (std::size_t size = 1; size < sample.coded.size(); size += step) {
            const auto result = decoder.decode(std::span(sample.coded).first(size),
                                               sample.old_block, *sample.traits, changes);
            ASSERT_EQ(outcome_of(result), "corrupt") << size << " of " << sample.coded.size();
        }
    }
}

}  // namespace
}  // namespace wisp::testing
