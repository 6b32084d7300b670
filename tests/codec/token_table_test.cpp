#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "codec/sign_rotation.hpp"
#include "codec/token_table.hpp"
#include "expect_result.hpp"

namespace wisp::testing {
namespace {

using Counts = std::array<std::uint32_t, 256>;

Bytes written(const TokenTable& table) {
    Bytes out;
    write_token_table(table, out);
    return out;
}

Result<TokenTable> parse_table(const Bytes& bytes) {
    ByteReader in(bytes);
    return parse_token_table(in);
}

/// Presence of the first bytes and their frequencies as they are given.
Bytes table_bytes(const std::vector<std::uint64_t>& frequencies) {
    Bytes out(33);
    out[0] = std::byte{32};
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        out[1 + i / 8] |= static_cast<std::byte>(1U << (i % 8));
    }
    for (const std::uint64_t frequency : frequencies) append_varint(out, frequency);
    return out;
}

TEST(TokenTable, KeepsEveryByteThatOccursAndSumsTo4096) {
    std::mt19937_64 rng(1);
    for (int round = 0; round < 2000; ++round) {
        Counts counts{};
        const std::size_t present = 1 + rng() % 256;
        for (std::size_t i = 0; i < present; ++i) {
            counts[rng() % 256] = 1 + static_cast<std::uint32_t>(rng() >> (33 + rng() % 31));
        }
        const TokenTable table = TokenTable::from_counts(counts);
        std::uint32_t sum = 0;
        for (std::size_t i = 0; i < 256; ++i) {
            ASSERT_EQ(table.frequency[i] != 0, counts[i] != 0);
            ASSERT_EQ(table.start[i], sum);
            sum += table.frequency[i];
        }
        ASSERT_EQ(sum, 4096U);
        const TokenTable back = value_of(parse_table(written(table)));
        ASSERT_EQ(back.frequency, table.frequency);
        ASSERT_EQ(back.start, table.start);
    }
}

TEST(TokenTable, GivesALoneByteEverything) {
    Counts counts{};
    counts[255] = 1;
    EXPECT_EQ(TokenTable::from_counts(counts).frequency[255], 4096);
    EXPECT_EQ(value_of(parse_table(table_bytes({4096}))).frequency[0], 4096);
}

TEST(TokenTable, MakesRoomForRareBytes) {
    Counts counts;
    counts.fill(1);
    counts[7] = 1U << 31;
    const TokenTable table = TokenTable::from_counts(counts);
    EXPECT_EQ(table.frequency[7], 4096 - 255);
    EXPECT_EQ(table.frequency[8], 1);
}

TEST(TokenTable, RejectsFrequenciesOutOfRange) {
    for (const std::uint64_t bad : {std::uint64_t{0}, std::uint64_t{4097}, ~std::uint64_t{0}}) {
        EXPECT_NE(text_of(parse_table(table_bytes({bad, 4096}))).find("out of range"),
                  std::string::npos);
    }
}

TEST(TokenTable, RejectsAnotherSumThan4096) {
    for (const auto& frequencies : std::vector<std::vector<std::uint64_t>>{
             {}, {4095}, {4096, 1}, {2048, 2047}, std::vector<std::uint64_t>(256, 17)}) {
        EXPECT_NE(text_of(parse_table(table_bytes(frequencies))).find("4096"), std::string::npos);
    }
}

TEST(TokenTable, RejectsToEndInside) {
    const Bytes bytes = table_bytes({1000, 3000, 96});
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_EQ(outcome_of(parse_table(
                      Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)))),
                  "corrupt");
    }
}

TEST(SignRotation, IsUndone) {
    EXPECT_EQ(rotate_sign_down(std::uint16_t{0x8001}), 0x0003);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto element = static_cast<std::uint16_t>(bits);
        ASSERT_EQ(rotate_sign_up(rotate_sign_down(element)), element);
    }
}

}  // namespace
}  // namespace wisp::testing
