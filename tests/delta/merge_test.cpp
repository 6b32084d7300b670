#include "checkpoint_steps.hpp"
#include "wisp/inspect.hpp"

namespace wisp::testing {
namespace {

class MergeInto : public ::testing::TestWithParam<Codec> {
  protected:
    DiffOptions options() const {
        DiffOptions options;
        options.codec = GetParam();
        options.threads = 2;
        return options;
    }
};

TEST_P(MergeInto, MakesOneDeltaOfAMixtureOfCodecs) {
    const CheckpointSteps steps(5);
    const std::vector<fs::path> deltas = {steps.delta(0, 1), steps.delta(1, 2, Codec::kPlain),
                                          steps.delta(2, 3, Codec::kGap), steps.delta(3, 4)};
    const Checkpoint base = value_of(Checkpoint::open(steps.state(0)));
    const fs::path merged = steps.folder() / "merged";
    const DiffReport report = value_of(merge(base, deltas, merged, options()));
    EXPECT_EQ(report.base, steps.digest(0));
    EXPECT_EQ(report.result, steps.digest(4));
    EXPECT_EQ(report.step, 4U) << "the last delta's";
    value_of(apply(steps.state(0), {merged}, steps.folder() / "out"));
    EXPECT_TRUE(steps.holds(steps.folder() / "out", 4));
    // Merging is exact: as if the two ends had been compared.
    const FileReport direct = value_of(inspect(steps.delta(0, 4, GetParam())));
    EXPECT_EQ(value_of(inspect(merged)).changed_elements, direct.changed_elements);
}

TEST_P(MergeInto, ForgetsWhatWasTakenBack) {
    const CheckpointSteps steps(2);
    const Checkpoint base = value_of(Checkpoint::open(steps.state(0)));
    const fs::path merged = steps.folder() / "merged";
    const DiffReport report = value_of(
        merge(base, {steps.delta(0, 1), steps.delta(1, 0, Codec::kGap)}, merged, options()));
    EXPECT_EQ(report.changed_elements, 0U);
    EXPECT_EQ(report.base, report.result);
}

INSTANTIATE_TEST_SUITE_P(Codecs, MergeInto,
                         ::testing::Values(Codec::kCompact, Codec::kSwift, Codec::kPlain,
                                           Codec::kGap),
                         [](const auto& named) { return std::string(name_of(named.param)); });

TEST(Merge, RefusesNothingToMerge) {
    const CheckpointSteps steps(1);
    const Checkpoint base = value_of(Checkpoint::open(steps.state(0)));
    EXPECT_EQ(outcome_of(merge(base, {}, steps.folder() / "m")), "invalid");
}

TEST(Merge, RefusesAChainThatDoesNotHold) {
    const CheckpointSteps steps(4);
    const fs::path out = steps.folder() / "m";
    const Checkpoint base = value_of(Checkpoint::open(steps.state(0)));
    EXPECT_EQ(outcome_of(merge(base, {steps.delta(0, 1), steps.delta(2, 3)}, out)), "wrong_base");
    EXPECT_EQ(outcome_of(merge(base, {steps.delta(1, 2), steps.delta(2, 3)}, out)), "wrong_base");
    EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace wisp::testing
