// Commits and objects that are gone, or going while somebody is at work: what is a hole, what is
// the end of the log, and what nobody may remove or write over.
#include "log/commit_log.hpp"
#include "log/judged_history.hpp"
#include "wisp/run_status.hpp"

namespace wisp::testing {
namespace {

// F1, and a commit that was deleted from the middle of the log.

TEST_F(JudgedHistory, RetentionRemovesNothingWhileACommitIsMissing) {
    start_unsigned();
    publish(0, 8);
    clock_->advance(kDay * 3);
    const std::size_t before = value_of(store_->list("", "", 1000)).size();
    const std::uint64_t gone = head_seq() - 3;
    const std::string text = text_at(gone);
    value_of(store_->remove(slot(gone)));
    RetainOptions options;
    options.maintenance = maintenance();
    options.grace = Milliseconds(0);
    const auto refused = retain_run(run_, options);
    EXPECT_EQ(outcome_of(refused), "gap") << text_of(refused);
    EXPECT_EQ(value_of(store_->list("", "", 1000)).size(), before - 1);
    put(gone, text);
    value_of(retain_run(run_, options));
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(value_of(export_step(run_, i, folder_ / std::to_string(i), maintenance())).state,
                  steps_.digest(i));
    }
}

TEST_F(JudgedHistory, AHoleInTheLogIsAGapForEveryVerb) {
    start_unsigned();
    publish(0, 2);
    FollowOptions options;
    options.run = at_clock();
    Follower follower = value_of(Follower::open(run_, *replica_, options));
    value_of(follower.catch_up());
    const std::uint64_t gone = head_seq() + 1;
    publish(2, 8);
    const std::string lost = text_at(gone);
    value_of(store_->remove(slot(gone)));
    const auto report = follower.catch_up();
    EXPECT_EQ(outcome_of(report), "gap") << "not 'nothing new'";
    EXPECT_EQ(digest(*replica_), steps_.digest(1));
    EXPECT_EQ(outcome_of(read_log(run_, 100, at_clock())), "gap");
    EXPECT_EQ(outcome_of(read_history(run_, 0, 100, at_clock())), "gap");
    EXPECT_EQ(outcome_of(export_step(run_, 6, folder_ / "out", maintenance())), "gap");
    EXPECT_EQ(outcome_of(compact_run(run_, maintenance())), "gap");
    EXPECT_EQ(outcome_of(branch(6)), "gap");
    EXPECT_FALSE(value_of(scrub_run(run_, maintenance(), false)).findings.empty());
    put(gone, lost);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(7));
}

TEST_F(JudgedHistory, AReplicaGoesAroundAHoleWhenAnAnchorLiesBehindIt) {
    start_unsigned();
    PublishOptions anchoring = publishing();
    anchoring.anchor_every = 4;
    Publisher publisher = value_of(Publisher::open(run_, *baseline_, anchoring));
    FollowOptions options;
    options.run = at_clock();
    Follower follower = value_of(Follower::open(run_, *replica_, options));
    std::uint64_t gone = 0;
    for (std::size_t i = 0; i < 24; ++i) {
        value_of(publisher.publish(state(i % 8), i));
        // Inside a stretch of sixteen slots, whose later commits know what lies before it.
        if (i == 16) value_of(follower.catch_up());
        if (i == 16) gone = head_seq() + 1;
    }
    ASSERT_NE(gone / 16, 0U);
    ASSERT_EQ(gone / 16, (gone + 1) / 16);
    value_of(store_->remove(slot(gone)));
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().step, 23U);
}

// What happens between two looks at the log.

TEST_F(JudgedHistory, RetentionThatSleptSinceItReadTheLogSweepsNothingNew) {
    start_unsigned();
    Publisher publisher = open_publisher();
    for (std::size_t i = 0; i < 3; ++i) value_of(publisher.publish(state(i), i));
    store_->interrupted_at = kDeltasPrefix;
    store_->meanwhile = [&] {
        value_of(publisher.publish(state(3), 3));
        clock_->advance(kDay * 2);
    };
    RetainOptions options;
    options.maintenance = maintenance();
    EXPECT_EQ(value_of(retain_run(run_, options)).removed_objects, 0U);
    FollowOptions free;
    free.run = at_clock();
    Follower follower = value_of(Follower::open(run_, *replica_, free));
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(3));
}

TEST_F(JudgedHistory, AnOrphanThatIsSentAgainWhileRetentionListsIsKept) {
    start_unsigned();
    publish(0, 2);
    const std::string orphan = run_.key("deltas/step_000009-e1-00112233445566ff.safetensors");
    value_of(store_->put(orphan, as_bytes("a delta whose upload was cut short")));
    clock_->advance(kDay * 2);
    publish(2, 3);
    RetainOptions options;
    options.maintenance = maintenance();
    store_->interrupted_at = orphan;
    store_->meanwhile = [&] { value_of(store_->put(orphan, as_bytes("and here it is again"))); };
    EXPECT_EQ(value_of(retain_run(run_, options)).removed_objects, 0U);
    EXPECT_EQ(outcome_of(store_->head(orphan)), "ok");
    clock_->advance(kDay * 2);
    EXPECT_EQ(value_of(retain_run(run_, options)).removed_objects, 1U);
}

TEST_F(JudgedHistory, AWriterThatWasReplacedLearnsSoWhileRetentionTakesItsHistoryAway) {
    start_unsigned();
    Publisher replaced = open_publisher();
    value_of(replaced.publish(state(0), 0));
    const auto baseline = value_of(open_memory_replica());
    PublishOptions options = publishing();
    options.anchor_every = 1;
    Publisher other = value_of(Publisher::open(run_, *baseline, options));
    for (std::size_t i = 1; i < 5; ++i) value_of(other.publish(state(i), i));
    EXPECT_EQ(outcome_of(replaced.publish(state(1), 1)), "fenced");
    store_->interrupted_at = slot(head_seq() - 1);
    bool retained = false;
    store_->meanwhile = [&] {
        RetainOptions retain;
        retain.maintenance = maintenance();
        retain.keep_anchors = 1;
        retain.grace = Milliseconds(0);
        retained = value_of(retain_run(run_, retain)).buried_commits > 0;
    };
    EXPECT_EQ(outcome_of(replaced.publish(state(1), 1)), "fenced");
    EXPECT_TRUE(retained);
}

TEST_F(JudgedHistory, ACommitThatIsLostBetweenTwoLooksLeavesNoFreeSlot) {
    start_unsigned();
    Publisher slow = open_publisher();
    value_of(slow.publish(state(0), 0));
    const std::uint64_t next = head_seq() + 1;
    PublishOptions options = publishing();
    const auto baseline = value_of(open_memory_replica());
    Publisher other = value_of(Publisher::open(run_, *baseline, options));
    value_of(other.publish(state(1), 1));
    // It meets the other's commit in its slot, and that is gone when it looks at it.
    store_->interrupted_at = slot(next);
    store_->meanwhile = [&] { value_of(store_->remove(slot(next))); };
    EXPECT_EQ(outcome_of(slow.publish(state(2), 2)), "unavailable");
    EXPECT_EQ(outcome_of(store_->head(slot(next))), "not_found");
    EXPECT_EQ(outcome_of(slow.publish(state(2), 2)), "gap");
}

TEST_F(JudgedHistory, ASlotThatIsTakenBeforeItCanBeReadIsLookedAtForASecond) {
    start_unsigned();
    Publisher slow = open_publisher();
    value_of(slow.publish(state(0), 0));
    const std::uint64_t next = head_seq() + 1;
    auto another = value_of(open_memory_replica());
    PublishOptions taking_over = publishing();
    taking_over.take_over = true;
    Publisher other = value_of(Publisher::open(run_, *another, taking_over));
    value_of(other.publish(state(1), 1));
    store_->interrupted_at = slot(next);
    store_->late_reads = 7;
    EXPECT_EQ(outcome_of(slow.publish(state(2), 2)), "fenced");
    EXPECT_EQ(store_->late_reads, 0);
    EXPECT_GE(clock_->slept_ms(), 1000);
}

TEST_F(JudgedHistory, ALogThatGrowsWhileAWriterLooksForItsEndHasNoHole) {
    start_unsigned();
    Publisher publisher = open_publisher();
    value_of(publisher.publish(state(0), 0));
    store_->interrupted_at = kCommitsPrefix;
    store_->meanwhile = [&] {
        value_of(publisher.publish(state(1), 1));
        value_of(publisher.publish(state(2), 2));
    };
    auto other = value_of(open_memory_replica());
    const Publisher second = value_of(Publisher::open(run_, *other, publishing()));
    EXPECT_EQ(second.at().state, steps_.digest(2));
}

TEST_F(JudgedHistory, MaintenanceTakesNoHoleForTheEndWhenTheHintIsOfNoUse) {
    start_unsigned();
    publish(0, 6);
    const std::uint64_t head = head_seq();
    value_of(store_->remove(slot(3)));
    value_of(store_->put(run_.key(kLatestKey), as_bytes("x")));
    RetainOptions options;
    options.maintenance = maintenance();
    clock_->advance(kDay * 2);
    EXPECT_EQ(outcome_of(retain_run(run_, options)), "gap");
    EXPECT_EQ(outcome_of(compact_run(run_, maintenance())), "gap");
    EXPECT_EQ(outcome_of(store_->head(slot(3))), "not_found");
    EXPECT_EQ(outcome_of(store_->head(slot(head))), "ok");
}

}  // namespace
}  // namespace wisp::testing
