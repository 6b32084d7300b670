// The table record: what it says is used, byte for byte, or refused.
#include "delta/interleave.hpp"

#include <gtest/gtest.h>

#include "delta/assemble_interleaved.hpp"
#include "expect_result.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

Bytes interleaved(const InterleaveTable& table, std::string_view segments) {
    Bytes bytes = write_interleave_table(table);
    append_text(bytes, segments);
    return bytes;
}

InterleaveTable sample() {
    InterleaveTable table;
    table.add(0, 3);
    table.add(1, 2);
    table.add(0, 1);
    table.add(2, 4);
    return table;
}

void expect_refused(const InterleaveTable& table, std::string_view segments) {
    const auto parsed = parse_interleaved(interleaved(table, segments));
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().kind, ErrorKind::kCorrupt);
}

TEST(InterleaveTable, PutsSegmentsTogetherInTheOrderOfTheExtents) {
    const TempFolder folder;
    write_bytes(folder / "interleaved", interleaved(sample(),
                                                    "abcd"
                                                    "XY"
                                                    "1234"));
    value_of(assemble_interleaved(folder / "interleaved", folder / "file"));
    EXPECT_EQ(as_text(read_bytes(folder / "file")), "abcXYd1234");
}

TEST(InterleaveTable, IsReadBackAsItWasWritten) {
    const auto parsed = value_of(parse_interleaved(interleaved(sample(), "0123456789")));
    EXPECT_EQ(parsed.table, sample());
    EXPECT_EQ(parsed.file_bytes, 10);
}

TEST(InterleaveTable, JoinsExtentsOfOneSegmentAndLeavesOutEmptyOnes) {
    InterleaveTable table;
    table.add(0, 1);
    table.add(1, 0);
    table.add(0, 2);
    EXPECT_EQ(table.extents, (std::vector<Extent>{{0, 3}}));
}

TEST(InterleaveTable, RefusesWhatDoesNotAddUp) {
    expect_refused(sample(), "012345678");
    expect_refused(sample(), "0123456789a");
    InterleaveTable past = sample();
    past.extents[1].bytes = 3;
    expect_refused(past, "0123456789");
    InterleaveTable unknown = sample();
    unknown.extents[1].segment = 3;
    expect_refused(unknown, "0123456789");
    InterleaveTable left_over = sample();
    left_over.extents.pop_back();
    expect_refused(left_over, "0123456789");
    InterleaveTable empty_run = sample();
    empty_run.extents.insert(empty_run.extents.begin(), {1, 0});
    expect_refused(empty_run, "0123456789");
    InterleaveTable cut = sample();
    cut.extents[0].bytes = 2;
    cut.extents.insert(cut.extents.begin(), {0, 1});
    expect_refused(cut, "0123456789");
    InterleaveTable empty_segment = sample();
    empty_segment.segment_bytes.push_back(0);
    expect_refused(empty_segment, "0123456789");
    expect_refused({}, "");
}

TEST(InterleaveTable, RefusesSizesThatOverflowOrCannotBeThere) {
    InterleaveTable overflowing;
    overflowing.segment_bytes = {UINT64_MAX, 2};
    overflowing.extents = {{0, UINT64_MAX}, {1, 2}};
    expect_refused(overflowing, "0123456789");
    Bytes many;
    append_text(many, "wisp interleave 1");
    append_fixed<std::uint8_t>(many, 0);
    append_varint(many, 1);
    append_varint(many, 1);
    append_varint(many, UINT64_MAX / 4);
    append_text(many, "0123456789");
    EXPECT_FALSE(parse_interleaved(many));
}

TEST(InterleaveTable, RefusesEveryCutAndUnknownFlags) {
    const Bytes good = interleaved(sample(), "0123456789");
    for (std::size_t size = 0; size < good.size(); ++size) {
        EXPECT_FALSE(parse_interleaved(std::span(good).first(size))) << size;
    }
    Bytes flagged = good;
    flagged[std::string_view("wisp interleave 1").size()] = std::byte{2};
    const auto parsed = parse_interleaved(flagged);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().kind, ErrorKind::kUnsupported);
}

TEST(InterleaveTable, RefusesAnOpenSealInWhatIsNoDelta) {
    const TempFolder folder;
    InterleaveTable table = sample();
    table.open_seal = true;
    write_bytes(folder / "interleaved", interleaved(table, "abcdXY1234"));
    const auto assembled = assemble_interleaved(folder / "interleaved", folder / "file");
    ASSERT_FALSE(assembled);
    EXPECT_EQ(assembled.error().kind, ErrorKind::kCorrupt);
    EXPECT_FALSE(fs::exists(folder / "file"));
}

}  // namespace
}  // namespace wisp::testing
