// Weights made of nothing but a layout, filled by a sliced delta from zeros, whole or in parts.
#include "delta/join_weights.hpp"

#include <gtest/gtest.h>

#include "checkpoint/zeroed_files.hpp"
#include "delta/diff_weights.hpp"
#include "sliced_model.hpp"

namespace wisp::testing {
namespace {

class JoinWeights : public ::testing::Test {
  protected:
    /// The layout of a state, and zeros for its weights.
    fs::path zeroed(std::size_t i, const std::string& name) const {
        const fs::path path = steps_.folder() / name;
        write_bytes(path, value_of(read_header(steps_.state(i))));
        value_of(make_zeroed(path));
        return path;
    }
    fs::path anchor(std::size_t i) const {
        const fs::path path = steps_.folder() / ("anchor" + std::to_string(i));
        const Checkpoint state = value_of(Checkpoint::open(steps_.state(i)));
        DiffOptions options;
        options.codec = Codec::kSwift;
        options.slices = 4;
        options.threads = 2;
        const ZeroWeights zeros = value_of(ZeroWeights::make(state.schema()));
        value_of(diff_weights(zeros, state, path, options));
        return path;
    }
    SlicedSteps steps_{3};
};

TEST_F(JoinWeights, AZeroedFileReadsAsZerosAndTakesNoRoom) {
    const fs::path path = zeroed(0, "zeroed");
    EXPECT_EQ(fs::file_size(path), fs::file_size(steps_.state(0)));
    const Checkpoint checkpoint = value_of(Checkpoint::open(path));
    for (std::size_t t = 0; t < checkpoint.schema().tensors().size(); ++t) {
        EXPECT_TRUE(
            std::ranges::all_of(checkpoint.bytes(t), [](auto b) { return b == std::byte{}; }));
    }
}

TEST_F(JoinWeights, AHeaderThatIsMoreThanOneIsRefused) {
    const fs::path path = steps_.folder() / "more";
    Bytes header = value_of(read_header(steps_.state(0)));
    header.push_back(std::byte{});
    write_bytes(path, header);
    EXPECT_EQ(outcome_of(make_zeroed(path)), "corrupt");
    header.resize(20);
    write_bytes(path, header);
    EXPECT_EQ(outcome_of(make_zeroed(path)), "corrupt") << "and less";
}

TEST_F(JoinWeights, AnAnchorFromZerosIsTheStateBitForBitAndNoLarger) {
    const fs::path delta = anchor(0);
    EXPECT_LT(static_cast<double>(fs::file_size(delta)),
              1.01 * static_cast<double>(fs::file_size(steps_.state(0))));
    const fs::path path = zeroed(0, "whole");
    const Checkpoint checkpoint = value_of(Checkpoint::open(path));
    const StateDigest state = value_of(fill_zeroed(checkpoint, delta, nullptr, 2));
    EXPECT_EQ(read_bytes(path), read_bytes(steps_.state(0))) << "the file, not only its weights";
    EXPECT_EQ(value_of(digest_of(checkpoint, 2)), state);
}

TEST_F(JoinWeights, ItIsADeltaLikeOthers) {
    const fs::path path = zeroed(1, "applied");
    value_of(apply_in_place(path, {anchor(1)}, {}));
    EXPECT_TRUE(steps_.holds(path, 1));
}

TEST_F(JoinWeights, ADeltaThatDoesNotStartFromZerosIsRefused) {
    const HeldSlices held = steps_.half(0);
    const Checkpoint checkpoint = value_of(Checkpoint::open(zeroed(0, "wrong")));
    const fs::path slices = steps_.folder() / "step.slices";
    fs::copy_file(steps_.delta(0, 1), slices);
    const auto filled = fill_zeroed(checkpoint, slices, &held, 2);
    ASSERT_FALSE(filled);
    EXPECT_TRUE(filled.error().kind == ErrorKind::kWrongBase ||
                filled.error().kind == ErrorKind::kCorrupt)
        << filled.error().text;
    EXPECT_EQ(outcome_of(fill_zeroed(checkpoint, steps_.delta(0, 1, 0), nullptr, 2)), "corrupt")
        << "not sliced";
}

TEST_F(JoinWeights, PartsAreProvenWithoutTheRest) {
    const HeldSlices held = steps_.half(1);
    const fs::path path = zeroed(0, "parts");
    const Checkpoint checkpoint = value_of(Checkpoint::open(path));
    const fs::path slices = steps_.folder() / "anchor.slices";
    fs::copy_file(anchor(0), slices);
    const StateDigest state = value_of(fill_zeroed(checkpoint, slices, &held, 2));
    const fs::path step = steps_.folder() / "next.slices";
    fs::copy_file(steps_.delta(0, 1), step);
    const ApplyReport report = value_of(patch_slices(checkpoint, state, {step}, held, 2));
    EXPECT_EQ(report.result, value_of(digest_of(value_of(Checkpoint::open(steps_.state(1))), 2)));
    const auto& q_proj = steps_.tensors(1)[2].bytes;
    const auto mine = checkpoint.bytes(2);
    const std::size_t half = q_proj.size() / 2;
    EXPECT_TRUE(std::ranges::equal(mine.subspan(half), std::span(q_proj).subspan(half)));
    EXPECT_TRUE(std::ranges::all_of(mine.first(half), [](auto b) { return b == std::byte{}; }))
        << "of the other host's rows nothing came";
    EXPECT_EQ(outcome_of(patch_slices(checkpoint, state, {step}, held, 2)), "wrong_base")
        << "a second time the old values are others";
}

}  // namespace
}  // namespace wisp::testing
