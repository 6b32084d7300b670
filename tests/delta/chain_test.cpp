#include <array>

#include "checkpoint_steps.hpp"

namespace wisp::testing {
namespace {

TEST(DeltaChain, AppliesConsecutiveDeltasOfAnyCodec) {
    const CheckpointSteps steps(4);
    const std::vector<fs::path> deltas = {steps.delta(0, 1, Codec::kPlain), steps.delta(1, 2),
                                          steps.delta(2, 3, Codec::kGap)};
    const fs::path out = steps.folder() / "out";
    const ApplyReport report = value_of(apply(steps.state(0), deltas, out));
    EXPECT_EQ(report.deltas_applied, 3U);
    EXPECT_TRUE(steps.holds(out, 3));
    value_of(apply_in_place(steps.state(0), deltas));
    EXPECT_TRUE(steps.holds(steps.state(0), 3));
}

TEST(DeltaChain, LeadsToTheSameStateByAnyMixtureOfCodecs) {
    // Dense enough that changes meet in a word, and that some come back to where they were.
    for (const double share : {0.02, 0.4, 1.0}) {
        const CheckpointSteps steps(4, share);
        const std::array codecs = {Codec::kSwift, Codec::kCompact, Codec::kGap};
        for (std::size_t mixture = 0; mixture < 27; ++mixture) {
            const std::vector<fs::path> deltas = {steps.delta(0, 1, codecs[mixture % 3]),
                                                  steps.delta(1, 2, codecs[mixture / 3 % 3]),
                                                  steps.delta(2, 3, codecs[mixture / 9])};
            const fs::path out = steps.folder() / ("out" + std::to_string(mixture));
            value_of(apply(steps.state(0), deltas, out));
            ASSERT_TRUE(steps.holds(out, 3));
            fs::copy_file(steps.state(0), out, fs::copy_options::overwrite_existing);
            ApplyOptions quick;
            quick.touched_only = true;
            value_of(apply_in_place(out, deltas, quick));
            ASSERT_TRUE(steps.holds(out, 3));
        }
    }
}

TEST(DeltaChain, LeavesOutWhatComesBackToWhereItWas) {
    const CheckpointSteps steps(2);
    for (const Codec codec : {Codec::kSwift, Codec::kCompact}) {
        const std::vector<fs::path> there_and_back = {steps.delta(0, 1, codec),
                                                      steps.delta(1, 0, codec)};
        const fs::path out = steps.folder() / "out";
        EXPECT_EQ(value_of(apply(steps.state(0), there_and_back, out)).changed_elements, 0U);
        EXPECT_TRUE(steps.holds(out, 0));
        fs::remove(out);
    }
}

TEST(DeltaChain, SkipsWhatTheBaseHasAlready) {
    const CheckpointSteps steps(4);
    const std::vector<fs::path> deltas = {steps.delta(0, 1), steps.delta(1, 2), steps.delta(2, 3)};
    const ApplyReport half = value_of(apply(steps.state(2), deltas, steps.folder() / "half"));
    EXPECT_EQ(half.deltas_skipped, 2U);
    EXPECT_EQ(half.deltas_applied, 1U);
    EXPECT_TRUE(steps.holds(steps.folder() / "half", 3));
    const ApplyReport all = value_of(apply_in_place(steps.state(3), deltas));
    EXPECT_EQ(all.deltas_skipped, 3U);
    EXPECT_EQ(all.changed_elements, 0U);
    EXPECT_TRUE(steps.holds(steps.state(3), 3));
}

TEST(DeltaChain, RefusesDeltasThatDoNotFollowEachOther) {
    const CheckpointSteps steps(4);
    const fs::path out = steps.folder() / "out";
    const auto gap = apply(steps.state(0), {steps.delta(0, 1), steps.delta(2, 3)}, out);
    EXPECT_EQ(outcome_of(gap), "wrong_base");
    const auto reversed = apply(steps.state(0), {steps.delta(1, 2), steps.delta(0, 1)}, out);
    EXPECT_EQ(outcome_of(reversed), "wrong_base");
    EXPECT_FALSE(fs::exists(out));
}

TEST(DeltaChain, RefusesAnotherBaseAndLeavesItAlone) {
    const CheckpointSteps steps(4);
    for (const Codec codec : {Codec::kCompact, Codec::kSwift, Codec::kPlain, Codec::kGap}) {
        const fs::path delta = steps.delta(1, 2, codec);
        for (const bool touched_only : {false, true}) {
            ApplyOptions options;
            options.touched_only = touched_only;
            const fs::path out = steps.folder() / "out";
            EXPECT_EQ(outcome_of(apply(steps.state(0), {delta}, out, options)), "wrong_base");
            EXPECT_FALSE(fs::exists(out));
            EXPECT_EQ(outcome_of(apply_in_place(steps.state(0), {delta}, options)), "wrong_base");
            EXPECT_TRUE(steps.holds(steps.state(0), 0));
        }
    }
}

TEST(DeltaChain, RefusesABaseOfOtherTensors) {
    const CheckpointSteps steps(2);
    std::vector<Tensor> more = steps.tensors(0);
    more.push_back({{"z", Dtype::kU8, {1}}, Bytes(1)});
    write_bytes(steps.folder() / "more", safetensors_file(more));
    const auto result = apply(steps.folder() / "more", {steps.delta(0, 1)}, steps.folder() / "out");
    EXPECT_EQ(outcome_of(result), "invalid");
}

TEST(DeltaChain, RefusesACheckpointInPlaceOfADelta) {
    const CheckpointSteps steps(2);
    EXPECT_EQ(outcome_of(apply(steps.state(0), {steps.state(1)}, steps.folder() / "out")),
              "invalid");
}

TEST(DeltaChain, RefusesTheBaseItselfAsOutput) {
    const CheckpointSteps steps(2);
    const auto result = apply(steps.state(0), {steps.delta(0, 1)}, steps.state(0));
    EXPECT_EQ(outcome_of(result), "invalid");
    EXPECT_TRUE(steps.holds(steps.state(0), 0));
}

TEST(DeltaChain, RefusesAFolderThatExistsAsOutput) {
    const CheckpointSteps steps(2);
    const fs::path base = steps.sharded(0);
    const fs::path taken = steps.folder() / "taken";
    fs::create_directory(taken);
    write_bytes(taken / "file", {});
    EXPECT_EQ(outcome_of(apply(base, {steps.delta(0, 1)}, taken)), "invalid");
    EXPECT_EQ(fs::file_size(taken / "file"), 0U);
}

TEST(DeltaChain, LeavesNothingBehindWhenADeltaIsDamaged) {
    const CheckpointSteps steps(2);
    const fs::path delta = steps.delta(0, 1);
    Bytes bytes = read_bytes(delta);
    bytes.back() ^= std::byte{1};
    write_bytes(delta, bytes);
    const std::size_t files = steps.folder().file_count();
    EXPECT_EQ(outcome_of(apply(steps.state(0), {delta}, steps.folder() / "out")), "corrupt");
    EXPECT_EQ(outcome_of(apply_in_place(steps.state(0), {delta})), "corrupt");
    EXPECT_EQ(steps.folder().file_count(), files);
    EXPECT_TRUE(steps.holds(steps.state(0), 0));
}

TEST(DeltaChain, AppliesAForeignDeltaOnTrust) {
    const TempFolder folder;
    write_bytes(folder / "m", safetensors_file({{{"w", Dtype::kU8, {4}}, Bytes(4)}}));
    Tensor indices{{"w.indices", Dtype::kI32, {1}}, {}};
    append_fixed(indices.bytes, std::int32_t{2});
    write_bytes(folder / "d",
                safetensors_file({indices, {{"w.values", Dtype::kU8, {1}}, {std::byte{9}}}}));
    const ApplyReport report = value_of(apply(folder / "m", {folder / "d"}, folder / "out"));
    EXPECT_FALSE(report.base_proven);
    EXPECT_FALSE(report.result_proven);
    EXPECT_EQ(value_of(Checkpoint::open(folder / "out")).bytes(0)[2], std::byte{9});
}

}  // namespace
}  // namespace wisp::testing
