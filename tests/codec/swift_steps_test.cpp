// Steps of a swift block: from which exponent on they are single, their signs, and how far they go.
#include "codec/swift_steps.hpp"

#include <gtest/gtest.h>

#include "codec/rans_reader.hpp"
#include "expect_result.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

/// Everything changes, from the old elements to the new ones.
BlockChanges changes_of(const Bytes& old_bits, const Bytes& new_bits, const DtypeTraits& traits) {
    BlockChanges changes = changes_between(old_bits, new_bits, traits);
    EXPECT_EQ(changes.old_bits, old_bits) << "every element changes";
    return changes;
}

struct Written {
    unsigned single_from = 0;
    Bytes signs;
    Bytes stream;
};

Written written(const BlockChanges& changes, const DtypeTraits& traits) {
    SwiftSteps steps;
    Written out;
    out.single_from = steps.find(changes, traits);
    steps.append_signs(out.signs);
    RansWriter rans;
    steps.put_lengths(rans);
    rans.finish(out.stream);
    return out;
}

Bytes followed(const Written& from, const Bytes& old_bits, const DtypeTraits& traits) {
    SwiftSteps steps;
    Bytes new_bits(old_bits.size());
    const auto result = steps.follow(RansReader(from.stream), from.single_from, from.signs.data(),
                                     old_bits, traits, new_bits.data());
    EXPECT_EQ(outcome_of(result), "ok") << text_of(result);
    return new_bits;
}

Bytes bf16(const std::vector<std::uint16_t>& elements) {
    Bytes bytes;
    for (const std::uint16_t element : elements) append_fixed(bytes, element);
    return bytes;
}

TEST(SwiftSteps, AreSingleAboveTheHighestExponentOfALongerOne) {
    //                      exponent 127, 120, 121; one up, two down, one down
    const Bytes old_bits = bf16({0x3F80, 0x3C05, 0x3C85});
    const Written two = written(changes_of(old_bits, bf16({0x3F81, 0x3C03, 0x3C84}), kBf16), kBf16);
    EXPECT_EQ(two.single_from, 121U);
    EXPECT_EQ(two.signs, Bytes{std::byte{0b110}});
    const Written ones =
        written(changes_of(old_bits, bf16({0x3F81, 0x3C04, 0x3C84}), kBf16), kBf16);
    EXPECT_EQ(ones.single_from, 0U);
    EXPECT_EQ(ones.signs, Bytes{std::byte{0b110}});
    EXPECT_EQ(ones.stream.size(), 16U) << "two states and no symbol";
    const Written nan = written(changes_of(bf16({0xFFC0}), bf16({0x1234}), kBf16), kBf16);
    EXPECT_EQ(nan.single_from, kMaxSingleFrom);
}

TEST(SwiftSteps, TakeABitOfSignAndNothingElseWhereTheyAreSingle) {
    Rng rng(3);
    const Bytes old_bits = random_block(kBf16, Content::kWeights, 803, rng);
    Bytes new_bits = old_bits;
    for (std::size_t i = 0; i < 803; ++i) {
        store_element(new_bits, kBf16, i, element_of(old_bits, kBf16, i) ^ 1);
    }
    const Written out = written(changes_of(old_bits, new_bits, kBf16), kBf16);
    EXPECT_EQ(out.signs.size(), 101U);
    EXPECT_LE(out.stream.size(), 16U + 4U);
    EXPECT_EQ(followed(out, old_bits, kBf16), new_bits);
}

TEST(SwiftSteps, KeepTheirSignsHoweverFarTheyGo) {
    Rng rng(4);
    for (const Dtype dtype : {Dtype::kU8, Dtype::kBf16, Dtype::kI16, Dtype::kF32, Dtype::kI64}) {
        const DtypeTraits& traits = traits_of(dtype);
        const unsigned bits = 8 * traits.element_bytes;
        for (const std::size_t count : {1U, 7U, 8U, 9U, 77U}) {
            const Bytes old_bits = random_block(traits, Content::kWeights, count, rng);
            for (unsigned places = 0; places < bits; ++places) {
                Bytes new_bits = old_bits;
                for (std::size_t i = 0; i < count; ++i) {
                    const std::uint64_t step = std::uint64_t{1} << ((places + i) % bits);
                    const std::uint64_t old = element_of(old_bits, traits, i);
                    store_element(new_bits, traits, i, i % 3 == 0 ? old - step : old + step);
                }
                const Written out = written(changes_of(old_bits, new_bits, traits), traits);
                ASSERT_EQ(followed(out, old_bits, traits), new_bits)
                    << traits.element_bytes << " bytes, " << count << ", " << places;
            }
        }
    }
}

}  // namespace
}  // namespace wisp::testing
