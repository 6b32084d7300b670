// The weave record: what it says is used, byte for byte, or refused.
#include "delta/interleave.hpp"

#include <gtest/gtest.h>

#include "delta/assemble_interleaved.hpp"
#include "expect_result.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

Bytes woven(const Weave& weave, std::string_view strands) {
    Bytes bytes = write_weave(weave);
    append_text(bytes, strands);
    return bytes;
}

Weave sample() {
    Weave weave;
    weave.add(0, 3);
    weave.add(1, 2);
    weave.add(0, 1);
    weave.add(2, 4);
    return weave;
}

void expect_refused(const Weave& weave, std::string_view strands) {
    const auto parsed = parse_weave(woven(weave, strands));
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().kind, ErrorKind::kCorrupt);
}

TEST(Weave, PutsStrandsTogetherInTheOrderOfTheRuns) {
    const TempFolder folder;
    write_bytes(folder / "woven", woven(sample(),
                                        "abcd"
                                        "XY"
                                        "1234"));
    value_of(assemble_woven(folder / "woven", folder / "file"));
    EXPECT_EQ(as_text(read_bytes(folder / "file")), "abcXYd1234");
}

TEST(Weave, IsReadBackAsItWasWritten) {
    const auto parsed = value_of(parse_weave(woven(sample(), "0123456789")));
    EXPECT_EQ(parsed.weave, sample());
    EXPECT_EQ(parsed.file_bytes, 10);
}

TEST(Weave, JoinsRunsOfOneStrandAndLeavesOutEmptyOnes) {
    Weave weave;
    weave.add(0, 1);
    weave.add(1, 0);
    weave.add(0, 2);
    EXPECT_EQ(weave.runs, (std::vector<WeaveRun>{{0, 3}}));
}

TEST(Weave, RefusesWhatDoesNotAddUp) {
    expect_refused(sample(), "012345678");
    expect_refused(sample(), "0123456789a");
    Weave past = sample();
    past.runs[1].bytes = 3;
    expect_refused(past, "0123456789");
    Weave unknown = sample();
    unknown.runs[1].strand = 3;
    expect_refused(unknown, "0123456789");
    Weave left_over = sample();
    left_over.runs.pop_back();
    expect_refused(left_over, "0123456789");
    Weave empty_run = sample();
    empty_run.runs.insert(empty_run.runs.begin(), {1, 0});
    expect_refused(empty_run, "0123456789");
    Weave cut = sample();
    cut.runs[0].bytes = 2;
    cut.runs.insert(cut.runs.begin(), {0, 1});
    expect_refused(cut, "0123456789");
    Weave empty_strand = sample();
    empty_strand.strand_bytes.push_back(0);
    expect_refused(empty_strand, "0123456789");
    expect_refused({}, "");
}

TEST(Weave, RefusesSizesThatOverflowOrCannotBeThere) {
    Weave overflowing;
    overflowing.strand_bytes = {UINT64_MAX, 2};
    overflowing.runs = {{0, UINT64_MAX}, {1, 2}};
    expect_refused(overflowing, "0123456789");
    Bytes many;
    append_text(many, "wisp weave 1");
    append_fixed<std::uint8_t>(many, 0);
    append_varint(many, 1);
    append_varint(many, 1);
    append_varint(many, UINT64_MAX / 4);
    append_text(many, "0123456789");
    EXPECT_FALSE(parse_weave(many));
}

TEST(Weave, RefusesEveryCutAndUnknownFlags) {
    const Bytes good = woven(sample(), "0123456789");
    for (std::size_t size = 0; size < good.size(); ++size) {
        EXPECT_FALSE(parse_weave(std::span(good).first(size))) << size;
    }
    Bytes flagged = good;
    flagged[12] = std::byte{2};
    const auto parsed = parse_weave(flagged);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().kind, ErrorKind::kUnsupported);
}

TEST(Weave, RefusesAnOpenSealInWhatIsNoDelta) {
    const TempFolder folder;
    Weave weave = sample();
    weave.open_seal = true;
    write_bytes(folder / "woven", woven(weave, "abcdXY1234"));
    const auto assembled = assemble_woven(folder / "woven", folder / "file");
    ASSERT_FALSE(assembled);
    EXPECT_EQ(assembled.error().kind, ErrorKind::kCorrupt);
    EXPECT_FALSE(fs::exists(folder / "file"));
}

}  // namespace
}  // namespace wisp::testing
