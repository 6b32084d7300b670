// Compaction, retention, scrubbing and export on a run of many small steps.
#include <gtest/gtest.h>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/follower.hpp"
#include "wisp/maintenance.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"

namespace wisp::testing {
namespace {

class Maintenance : public ::testing::Test {
  protected:
    Maintenance() { value_of(init_run(run_, {})); }

    void publish(std::size_t first, std::size_t end, std::uint64_t anchor_every = 1000) {
        PublishOptions options;
        options.anchor_every = anchor_every;
        auto baseline = value_of(open_memory_replica());
        Publisher publisher = value_of(Publisher::open(run_, *baseline, options));
        for (std::size_t i = first; i < end; ++i) {
            value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(i))), i));
        }
    }
    StateDigest joined(const Location& where) {
        auto replica = value_of(open_memory_replica());
        Follower follower = value_of(Follower::open(where, *replica, {}));
        value_of(follower.catch_up());
        return value_of(digest_of(*replica->weights()));
    }
    static RetainOptions at_once() {
        RetainOptions options;
        options.grace = Milliseconds(0);
        return options;
    }

    CheckpointSteps steps_{24};
    TempFolder folder_;
    std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>(system_clock());
    Location run_{store_, "runs/a", "memory:a"};
};

TEST_F(Maintenance, MergedDeltasLeadALateJoinerToTheSameState) {
    publish(0, 24);
    const CompactReport report = value_of(compact_run(run_, {}));
    EXPECT_EQ(report.merged, 3U);  // 23 = 16 + 4 + 2 + 1; the last is a single delta
    EXPECT_LT(report.join_objects_after, report.join_objects_before / 2);
    EXPECT_EQ(joined(run_), steps_.digest(23));
    EXPECT_EQ(value_of(compact_run(run_, {})).merged, 0U);
    const ScrubReport scrubbed = value_of(scrub_run(run_, {}, true));
    EXPECT_TRUE(scrubbed.findings.empty()) << scrubbed.findings.front().problem;
    EXPECT_EQ(scrubbed.states_proven, 24U);
}

TEST_F(Maintenance, RetentionKeepsEveryStateFromTheFloorOn) {
    publish(0, 24, 6);
    value_of(compact_run(run_, {}));
    const RunStatus before = value_of(read_status(run_, {}));
    RetainOptions dry = at_once();
    dry.dry_run = true;
    const RetainReport planned = value_of(retain_run(run_, dry));
    EXPECT_EQ(value_of(read_status(run_, {})).stored, before.stored);
    const RetainReport report = value_of(retain_run(run_, at_once()));
    EXPECT_EQ(report.removed_objects, planned.removed_objects);
    EXPECT_GT(report.removed_objects, 10U);
    EXPECT_EQ(value_of(read_status(run_, {})).anchors.size(), 2U);
    EXPECT_EQ(joined(run_), steps_.digest(23));
    for (std::uint64_t step = report.floor_step; step < 24; ++step) {
        const auto exported = export_step(run_, step, folder_ / std::to_string(step), {});
        ASSERT_EQ(outcome_of(exported), "ok") << text_of(exported);
        EXPECT_TRUE(steps_.holds(folder_ / std::to_string(step), step));
    }
    const auto gone = export_step(run_, report.floor_step - 1, folder_ / "gone", {});
    EXPECT_NE(outcome_of(gone), "ok");
    EXPECT_TRUE(value_of(scrub_run(run_, {}, true)).findings.empty());
}

TEST_F(Maintenance, TheGraceKeepsWhatWasGivenUp) {
    publish(0, 24, 6);
    RetainOptions options;
    options.grace = Milliseconds(3'600'000);
    const RetainReport report = value_of(retain_run(run_, options));
    EXPECT_TRUE(report.floor_moved);
    EXPECT_EQ(report.removed_objects, 0U);
    EXPECT_EQ(report.buried_commits, 0U);
    EXPECT_GT(report.waiting_objects, 0U);
}

TEST_F(Maintenance, AReplicaThatSleptThroughRetentionStartsOver) {
    publish(0, 2);
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    publish(2, 24, 6);
    value_of(retain_run(run_, at_once()));
    value_of(follower.catch_up());
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 23));
}

TEST_F(Maintenance, RetentionNeverTakesWhatABranchNeeds) {
    publish(0, 8);
    const Location branch{run_.store, "runs/b", "memory:b"};
    InitOptions options;
    options.branch_of = run_;
    options.branch_step = 5;
    value_of(init_run(branch, options));
    publish(8, 24, 4);
    const RetainReport report = value_of(retain_run(run_, at_once()));
    EXPECT_EQ(report.held_by_branches.size(), 1U);
    EXPECT_EQ(joined(branch), steps_.digest(5));
    EXPECT_EQ(joined(run_), steps_.digest(23));
    EXPECT_TRUE(value_of(scrub_run(branch, {}, true)).findings.empty());
}

}  // namespace
}  // namespace wisp::testing
