// Gaps are coded by reciprocals and several at a time; what comes out is the plain coder's.
#include "codec/gap_writer.hpp"

#include <gtest/gtest.h>

#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

/// Low bits and stream by the symbols one after the other, with divisions.
Bytes plainly_written(std::span<const std::uint32_t> positions, const GapShape& shape) {
    const QuotientTable table(shape.zero_chance);
    const std::uint64_t scale = std::uint64_t{1} << shape.low_bits;
    Bytes out((positions.size() * shape.low_bits + 7) / 8);
    RansWriter rans;
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < positions.size(); ++k) {
        const std::uint32_t gap = positions[k] - next;
        next = positions[k] + 1;
        for (unsigned bit = 0; bit < shape.low_bits; ++bit) {
            const std::size_t at = k * shape.low_bits + bit;
            out[at / 8] |= static_cast<std::byte>((gap >> bit & 1) << (at % 8));
        }
        const Lane lane = k % 2 == 0 ? Lane::kPosition : Lane::kValue;
        const auto put = [&](std::uint64_t symbol) {
            rans.put_value(table.start[symbol], table.frequency[symbol], kQuotientBits, lane);
        };
        std::uint64_t quotient = gap / scale;
        for (; quotient >= table.escape; quotient -= table.escape) put(table.escape);
        put(quotient);
    }
    rans.finish(out);
    return out;
}

Bytes written(GapWriter& gaps, std::span<const std::uint32_t> positions, const GapShape& shape) {
    Bytes out;
    gaps.append_low_bits(positions, shape, out);
    RansWriter rans;
    rans.finish(out, gaps.symbols(), [&](RansStates& states) { gaps.code(states); });
    return out;
}

/// Ascending; now and then far from the one before.
std::vector<std::uint32_t> scattered(std::size_t count, std::uint32_t near, std::uint32_t far,
                                     Rng& rng) {
    std::vector<std::uint32_t> positions;
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < count; ++k) {
        next += static_cast<std::uint32_t>(rng() % (rng() % 8 == 0 ? far : near));
        positions.push_back(next++);
    }
    return positions;
}

TEST(GapWriter, WritesWhatThePlainCoderWrites) {
    Rng rng(17);
    GapWriter gaps;
    for (unsigned chance = 1; chance < 256; ++chance) {
        for (const unsigned low_bits : {0U, 1U, 7U}) {
            for (const std::size_t count : {1U, 2U, 333U}) {
                const auto positions = scattered(count, 3U << low_bits, 80U << low_bits, rng);
                const GapShape shape = {low_bits, chance};
                ASSERT_EQ(written(gaps, positions, shape), plainly_written(positions, shape))
                    << chance << ", " << low_bits << ", " << count;
            }
        }
    }
}

TEST(GapWriter, WritesTheFarthestGaps) {
    GapWriter gaps;
    const std::vector<std::uint32_t> ends = {0, (1U << 24) - 1};
    for (const unsigned low_bits : {14U, 23U, kMaxLowBits}) {
        for (const unsigned chance : {1U, 128U, 255U}) {
            const GapShape shape = {low_bits, chance};
            EXPECT_EQ(written(gaps, ends, shape), plainly_written(ends, shape));
        }
    }
}

TEST(GapWriter, WritesNothingOfNoChange) {
    GapWriter gaps;
    const GapShape shape = {3, 57};
    EXPECT_EQ(written(gaps, {}, shape), plainly_written({}, shape));
}

}  // namespace
}  // namespace wisp::testing
