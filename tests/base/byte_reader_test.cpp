#include <gtest/gtest.h>

#include <initializer_list>
#include <random>

#include "base/bytes.hpp"

namespace wisp {
namespace {

Bytes bytes(std::initializer_list<int> values) {
    Bytes out;
    for (const int value : values) out.push_back(static_cast<std::byte>(value));
    return out;
}

TEST(ByteReader, ReadsFixedIntegersLittleEndian) {
    const Bytes data = bytes({1, 2, 3, 4, 5, 6, 7});
    ByteReader in(data);
    EXPECT_EQ(in.fixed<std::uint8_t>(), 1);
    EXPECT_EQ(in.fixed<std::uint16_t>(), 0x0302);
    EXPECT_EQ(in.fixed<std::uint32_t>(), 0x07060504U);
    EXPECT_TRUE(in.ok());
    EXPECT_TRUE(in.at_end());
}

TEST(ByteReader, StaysFailedAndYieldsZerosPastTheEnd) {
    const Bytes data = bytes({9, 9, 9});
    ByteReader in(data);
    EXPECT_EQ(in.fixed<std::uint32_t>(), 0U);
    EXPECT_FALSE(in.ok());
    EXPECT_EQ(in.fixed<std::uint8_t>(), 0) << "although a byte is left";
    EXPECT_TRUE(in.take(1).empty());
    EXPECT_EQ(in.varint(), 0U);
    EXPECT_EQ(in.text(2), "");
}

TEST(ByteReader, RefusesToTakeMoreThanThereIs) {
    const Bytes data = bytes({1, 2});
    ByteReader in(data);
    EXPECT_TRUE(in.take(~std::uint64_t{0}).empty());
    EXPECT_FALSE(in.ok());
}

TEST(ByteReader, TakesNothingFromNothing) {
    ByteReader in({});
    EXPECT_TRUE(in.take(0).empty());
    EXPECT_TRUE(in.ok());
    EXPECT_TRUE(in.at_end());
}

TEST(Varint, ReadsBackWhatWasWritten) {
    std::mt19937_64 rng(1);
    for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t value = rng() >> (rng() % 64);
        Bytes out;
        append_varint(out, value);
        ByteReader in(out);
        ASSERT_EQ(in.varint(), value);
        ASSERT_TRUE(in.ok() && in.at_end());
    }
}

TEST(Varint, HoldsTheLargestNumberInTenBytes) {
    Bytes out;
    append_varint(out, ~std::uint64_t{0});
    EXPECT_EQ(out.size(), 10U);
    ByteReader in(out);
    EXPECT_EQ(in.varint(), ~std::uint64_t{0});
}

TEST(Varint, RefusesAFormThatIsNotTheShortest) {
    for (const Bytes& padded : {bytes({0x80, 0}), bytes({0x81, 0}), bytes({0xFF, 0x80, 0}),
                                bytes({0x80, 0x80, 0x80, 0})}) {
        ByteReader in(padded);
        EXPECT_EQ(in.varint(), 0U);
        EXPECT_FALSE(in.ok());
    }
    const Bytes zero = bytes({0});
    ByteReader in(zero);
    EXPECT_EQ(in.varint(), 0U);
    EXPECT_TRUE(in.ok()) << "a single zero is zero";
}

TEST(Varint, RefusesWhatDoesNotFit64Bits) {
    Bytes tenth(9, std::byte{0xFF});
    tenth.push_back(std::byte{2});
    Bytes eleven(10, std::byte{0xFF});
    eleven.push_back(std::byte{1});
    for (const Bytes& large : {tenth, eleven}) {
        ByteReader in(large);
        EXPECT_EQ(in.varint(), 0U);
        EXPECT_FALSE(in.ok());
    }
}

TEST(Varint, RefusesToEndInTheMiddle) {
    const Bytes cut = bytes({0x80, 0x80});
    ByteReader in(cut);
    EXPECT_EQ(in.varint(), 0U);
    EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace wisp
