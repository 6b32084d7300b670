#include <gtest/gtest.h>

#include <random>

#include "codec/rans.hpp"
#include "codec/rans_reader.hpp"

namespace wisp {
namespace {

struct LaneSymbol {
    Lane lane;
    std::uint32_t start;
    std::uint32_t frequency;
    unsigned bits;
};

void put(RansWriter& writer, const LaneSymbol& symbol) {
    if (symbol.lane == Lane::kPosition) {
        writer.put_position(symbol.start, symbol.frequency);
    } else {
        writer.put_value(symbol.start, symbol.frequency, symbol.bits);
    }
}

/// A random slice of [0, 2^bits).
LaneSymbol random_symbol(std::mt19937_64& rng) {
    constexpr std::array<unsigned, 3> kBits = {1, 12, 16};
    const Lane lane = rng() % 2 == 0 ? Lane::kPosition : Lane::kValue;
    const unsigned bits = lane == Lane::kPosition ? kPositionBits : kBits[rng() % kBits.size()];
    const std::uint32_t total = 1U << bits;
    const auto start = static_cast<std::uint32_t>(rng() % total);
    const std::uint32_t rest = total - start;
    const auto frequency = static_cast<std::uint32_t>(
        rng() % 3 == 0 ? 1 : 1 + rng() % std::min<std::uint64_t>(rest, total - 1));
    return {lane, start, frequency, bits};
}

template <Lane kLane>
void expect_symbol(RansReader& reader, const LaneSymbol& symbol) {
    const std::uint32_t slot = reader.peek<kLane>(symbol.bits);
    ASSERT_GE(slot, symbol.start);
    ASSERT_LT(slot, symbol.start + symbol.frequency);
    reader.advance<kLane>(symbol.start, symbol.frequency, symbol.bits);
}

Bytes stream_of(const std::vector<LaneSymbol>& symbols) {
    RansWriter writer;
    for (const LaneSymbol& s : symbols) put(writer, s);
    Bytes out;
    writer.finish(out);
    return out;
}

std::vector<LaneSymbol> random_symbols(std::size_t count, unsigned seed) {
    std::mt19937_64 rng(seed);
    std::vector<LaneSymbol> symbols;
    for (std::size_t i = 0; i < count; ++i) symbols.push_back(random_symbol(rng));
    return symbols;
}

void read_all(RansReader& reader, const std::vector<LaneSymbol>& symbols) {
    for (const LaneSymbol& s : symbols) {
        if (s.lane == Lane::kPosition) {
            reader.advance<Lane::kPosition>(s.start, s.frequency, s.bits);
        } else {
            reader.advance<Lane::kValue>(s.start, s.frequency, s.bits);
        }
    }
}

TEST(RansStream, ReadsBackBothLanes) {
    for (unsigned seed = 0; seed < 40; ++seed) {
        const auto symbols = random_symbols(seed * 53, seed);
        const Bytes stream = stream_of(symbols);
        RansReader reader(stream);
        for (const LaneSymbol& symbol : symbols) {
            if (symbol.lane == Lane::kPosition) {
                ASSERT_NO_FATAL_FAILURE(expect_symbol<Lane::kPosition>(reader, symbol));
            } else {
                ASSERT_NO_FATAL_FAILURE(expect_symbol<Lane::kValue>(reader, symbol));
            }
        }
        EXPECT_TRUE(reader.finished());
    }
}

TEST(RansStream, ReadsBackPlainBits) {
    std::mt19937_64 rng(5);
    std::vector<std::pair<std::uint64_t, unsigned>> numbers;
    RansWriter writer;
    for (int i = 0; i < 1000; ++i) {
        const auto bits = static_cast<unsigned>(rng() % 64);
        const std::uint64_t value = bits == 0 ? 0 : rng() >> (64 - bits);
        numbers.emplace_back(value, bits);
        writer.put_bits(value, bits);
    }
    Bytes stream;
    writer.finish(stream);
    RansReader reader(stream);
    for (const auto& [value, bits] : numbers) ASSERT_EQ(reader.take_bits(bits), value);
    EXPECT_TRUE(reader.finished());
}

TEST(RansStream, OfNothingIsTwoStates) {
    const Bytes stream = stream_of({});
    EXPECT_EQ(stream.size(), 16U);
    EXPECT_TRUE(RansReader(stream).finished());
}

TEST(RansStream, WriterStartsAfreshAfterFinish) {
    RansWriter writer;
    const auto symbols = random_symbols(100, 1);
    for (int round = 0; round < 2; ++round) {
        for (const LaneSymbol& s : symbols) put(writer, s);
        Bytes out;
        writer.finish(out);
        EXPECT_EQ(out, stream_of(symbols));
    }
}

TEST(RansStream, RejectsAStreamThatEndsTooEarly) {
    const auto symbols = random_symbols(500, 2);
    const Bytes stream = stream_of(symbols);
    for (std::size_t size = 16; size < stream.size(); size += 4) {
        RansReader reader(std::span<const std::byte>(stream).first(size));
        ASSERT_TRUE(reader.ok());
        read_all(reader, symbols);
        ASSERT_FALSE(reader.ok()) << size << " of " << stream.size();
        ASSERT_FALSE(reader.finished());
    }
}

TEST(RansStream, RejectsWordsLeftBehind) {
    const auto symbols = random_symbols(50, 3);
    Bytes stream = stream_of(symbols);
    append_fixed(stream, std::uint32_t{0});
    RansReader reader(stream);
    read_all(reader, symbols);
    EXPECT_TRUE(reader.ok());
    EXPECT_FALSE(reader.finished());
}

TEST(RansStream, RejectsAStateThatDoesNotEndAtItsStart) {
    for (const std::size_t lane : {0U, 8U}) {
        Bytes stream = stream_of({});
        store_le(stream.data() + lane, kRansLow + 1);
        RansReader reader(stream);
        EXPECT_TRUE(reader.ok());
        EXPECT_FALSE(reader.finished());
    }
}

TEST(RansStream, RejectsStatesOutOfRange) {
    for (const std::uint64_t state :
         {std::uint64_t{0}, kRansLow - 1, kRansLow << 32, ~std::uint64_t{0}}) {
        for (const std::size_t lane : {0U, 8U}) {
            Bytes stream = stream_of({});
            store_le(stream.data() + lane, state);
            EXPECT_FALSE(RansReader(stream).ok());
        }
    }
    Bytes stream = stream_of({});
    store_le(stream.data(), (kRansLow << 32) - 1);
    EXPECT_TRUE(RansReader(stream).ok()) << "the highest state";
}

TEST(RansStream, RejectsALengthThatIsNoStream) {
    const Bytes bytes(19, std::byte{0x80});
    for (const std::size_t size : {0U, 1U, 8U, 15U, 17U, 18U, 19U}) {
        EXPECT_FALSE(RansReader(std::span<const std::byte>(bytes).first(size)).ok()) << size;
    }
}

TEST(RansStream, CostsWhatTheFrequenciesSay) {
    RansWriter writer;
    for (int i = 0; i < 8000; ++i) writer.put_value(0, 3 << 14, 16);
    Bytes out;
    writer.finish(out);
    EXPECT_NEAR(static_cast<double>(out.size()), 16 + 8000 * 0.415037 / 8, 8);
}

}  // namespace
}  // namespace wisp
