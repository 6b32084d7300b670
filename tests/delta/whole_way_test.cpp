// diff and apply on checkpoints on disk, as files and as folders.
#include "checkpoint_steps.hpp"
#include "wisp/inspect.hpp"

namespace wisp::testing {
namespace {

class WholeWay : public ::testing::TestWithParam<Codec> {};

TEST_P(WholeWay, TurnsTheOldStateIntoTheNewOne) {
    for (const double share : {0.0, 0.02, 1.0}) {
        const CheckpointSteps steps(2, share);
        const fs::path out = steps.folder() / "out";
        const ApplyReport report =
            value_of(apply(steps.state(0), {steps.delta(0, 1, GetParam())}, out));
        EXPECT_TRUE(steps.holds(out, 1));
        EXPECT_TRUE(report.base_proven && report.result_proven);
        EXPECT_EQ(report.result, steps.digest(1));
        EXPECT_EQ(report.deltas_applied, 1U);
    }
}

TEST_P(WholeWay, TurnsItInPlaceToo) {
    for (const bool touched_only : {false, true}) {
        const CheckpointSteps steps(2);
        const fs::path delta = steps.delta(0, 1, GetParam());
        ApplyOptions options;
        options.touched_only = touched_only;
        const ApplyReport report = value_of(apply_in_place(steps.state(0), {delta}, options));
        EXPECT_TRUE(steps.holds(steps.state(0), 1));
        EXPECT_EQ(report.recovery, Recovery::kNone);
        EXPECT_EQ(steps.folder().file_count(), 3U) << "no journal is left";
    }
}

TEST_P(WholeWay, TurnsAFolderOfShards) {
    const CheckpointSteps steps(2);
    const fs::path base = steps.sharded(0);
    const fs::path target = steps.sharded(1);
    const fs::path delta = steps.folder() / "delta";
    DiffOptions options;
    options.codec = GetParam();
    const DiffReport written = value_of(
        diff(value_of(Checkpoint::open(base)), value_of(Checkpoint::open(target)), delta, options));
    EXPECT_EQ(written.step, 0U) << "a step is only what the options say";
    const fs::path out = steps.folder() / "out";
    value_of(apply(base, {delta}, out));
    EXPECT_TRUE(steps.holds(out, 1));
    for (const char* name : {"m-1.safetensors", "m-2.safetensors", "config.json"}) {
        EXPECT_TRUE(fs::exists(out / name)) << name;
    }
    EXPECT_EQ(read_bytes(out / "m-2.safetensors"), read_bytes(target / "m-2.safetensors"));
    value_of(apply_in_place(base, {delta}));
    EXPECT_TRUE(steps.holds(base, 1));
    // The same tensors in another layout are the same state.
    value_of(apply(steps.state(0), {delta}, steps.folder() / "flat"));
    EXPECT_TRUE(steps.holds(steps.folder() / "flat", 1));
}

TEST_P(WholeWay, GivesTheSameFileForAnyNumberOfThreads) {
    const CheckpointSteps steps(2);
    const Checkpoint old_state = value_of(Checkpoint::open(steps.state(0)));
    const Checkpoint new_state = value_of(Checkpoint::open(steps.state(1)));
    Bytes first;
    for (const unsigned threads : {1U, 2U, 7U}) {
        DiffOptions options;
        options.codec = GetParam();
        options.threads = threads;
        const fs::path path = steps.folder() / "delta";
        value_of(diff(old_state, new_state, path, options));
        if (first.empty()) first = read_bytes(path);
        EXPECT_EQ(read_bytes(path), first);
    }
}

TEST_P(WholeWay, VerifiesAgainstTheRightBaseOnly) {
    const CheckpointSteps steps(2);
    const fs::path delta = steps.delta(0, 1, GetParam());
    const VerifyReport report = value_of(verify(delta, steps.state(0)));
    EXPECT_TRUE(report.decoded && report.base_matches && report.result_matches);
    EXPECT_EQ(report.state, steps.digest(1));
    EXPECT_EQ(outcome_of(verify(delta, steps.state(1))), "wrong_base");
    EXPECT_FALSE(value_of(verify(delta, std::nullopt)).decoded);
}

TEST_P(WholeWay, InspectsWhatItWrote) {
    const CheckpointSteps steps(2);
    const FileReport report = value_of(inspect(steps.delta(0, 1, GetParam())));
    EXPECT_TRUE(report.is_delta());
    EXPECT_EQ(report.codec, GetParam());
    EXPECT_FALSE(report.foreign);
    EXPECT_EQ(report.base, steps.digest(0));
    EXPECT_EQ(report.result, steps.digest(1));
    EXPECT_EQ(report.step, 1U);
    EXPECT_FALSE(value_of(inspect(steps.state(0))).is_delta());
}

TEST_P(WholeWay, TellsHowFarTheSealWasRead) {
    const CheckpointSteps steps(2);
    std::uint64_t read = 0, of = 0;
    const Progress told = [&](std::string_view, std::uint64_t done, std::uint64_t total) {
        read = done;
        of = total;
    };
    const FileReport report = value_of(inspect(steps.delta(0, 1, GetParam()), told));
    EXPECT_EQ(read, of);
    EXPECT_GE(of, report.payload_bytes);
    EXPECT_LT(of, report.file_bytes);
}

INSTANTIATE_TEST_SUITE_P(Codecs, WholeWay,
                         ::testing::Values(Codec::kCompact, Codec::kSwift, Codec::kPlain,
                                           Codec::kGap),
                         [](const auto& named) { return std::string(name_of(named.param)); });

TEST(DiffCheckpoints, OfAStateAndItselfChangesNothing) {
    const CheckpointSteps steps(1);
    const fs::path delta = steps.delta(0, 0);
    EXPECT_EQ(value_of(inspect(delta)).changed_elements, 0U);
    value_of(apply(steps.state(0), {delta}, steps.folder() / "out"));
    EXPECT_EQ(read_bytes(steps.folder() / "out"), read_bytes(steps.state(0)));
}

TEST(DiffCheckpoints, RefusesOtherTensors) {
    const CheckpointSteps steps(1);
    Rng rng(1);
    write_bytes(steps.folder() / "other",
                safetensors_file({random_tensor("a.weight", Dtype::kBf16, {61, 17}, rng)}));
    const auto result =
        diff(value_of(Checkpoint::open(steps.state(0))),
             value_of(Checkpoint::open(steps.folder() / "other")), steps.folder() / "delta");
    EXPECT_EQ(outcome_of(result), "invalid");
    EXPECT_FALSE(fs::exists(steps.folder() / "delta"));
}

TEST(DiffCheckpoints, SpansManyBlocks) {
    const TempFolder folder;
    Rng rng(4);
    const std::vector<Tensor> model = {random_tensor("w", Dtype::kU8, {(2U << 20) + 77}, rng),
                                       random_tensor("x", Dtype::kBf16, {(1U << 20) + 1}, rng)};
    const std::vector<Tensor> changed = changed_model(model, 0.003, rng);
    write_bytes(folder / "old", safetensors_file(model));
    write_bytes(folder / "new", safetensors_file(changed));
    for (const Codec codec : {Codec::kCompact, Codec::kSwift, Codec::kPlain, Codec::kGap}) {
        DiffOptions options;
        options.codec = codec;
        options.threads = 3;
        value_of(diff(value_of(Checkpoint::open(folder / "old")),
                      value_of(Checkpoint::open(folder / "new")), folder / "delta", options));
        value_of(apply(folder / "old", {folder / "delta"}, folder / "out"));
        EXPECT_EQ(read_bytes(folder / "out"), read_bytes(folder / "new")) << name_of(codec);
    }
}

}  // namespace
}  // namespace wisp::testing
