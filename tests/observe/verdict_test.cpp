// The one line about a run: which sign makes it amber or red, and what it says then.
#include <gtest/gtest.h>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"
#include "wisp/verdict.hpp"

namespace wisp::testing {
namespace {

constexpr std::int64_t kNow = 1'800'000'000'000;
constexpr std::int64_t kSecond = 1'000;
constexpr std::int64_t kMinute = 60 * kSecond;
constexpr std::int64_t kHour = 60 * kMinute;

/// Eight steps, one every `every`, the newest `age` old.
Vitals steady(std::int64_t every, std::int64_t age) {
    Vitals vitals;
    vitals.now_ms = kNow;
    for (std::uint64_t i = 1; i <= 8; ++i) {
        HistoryEntry entry;
        entry.commit.seq = i;
        entry.commit.step = i;
        entry.commit.hash = "hash" + std::to_string(i);
        entry.previous = i == 1 ? "" : "hash" + std::to_string(i - 1);
        entry.commit.time_ms = kNow - age - static_cast<std::int64_t>(8 - i) * every;
        entry.makes_state = true;
        vitals.commits.push_back(entry);
    }
    return vitals;
}

ReplicaHealth replica(std::string id, std::uint64_t seq, std::int64_t seen_ms) {
    return {
        {std::move(id), seq, seq, 8 - seq, seen_ms, ReplicaStatus::kFollowing}, {}, 30 * kSecond};
}

std::string judged(const Vitals& vitals, const VerdictLimits& limits = {}) {
    const RunVerdict verdict = judge_run(vitals, limits);
    std::string text = std::string(colour_of(verdict.severity)) + " ";
    if (!verdict.concerns.empty()) text += std::string(name_of(verdict.concerns[0].cause)) + ": ";
    return text + verdict.text;
}

TEST(Verdict, IsGreenWhileStepsComeAndReplicasFollow) {
    Vitals vitals = steady(kMinute, 20 * kSecond);
    EXPECT_EQ(judged(vitals), "green step 8, 20.0 s ago; no replica follows");
    vitals.replicas.push_back({replica("a", 8, 5 * kSecond), {}});
    EXPECT_EQ(judged(vitals), "green step 8, 20.0 s ago; 1 replica follows");
}

TEST(Verdict, ARunWithoutStepsIsAmber) {
    EXPECT_EQ(judged({}), "amber nothing_published: nothing was published yet");
}

TEST(Verdict, ALateStepIsAmberAndRedOnceSomebodyWaits) {
    EXPECT_EQ(judged(steady(kMinute, 3 * kMinute)).substr(0, 5), "green");
    EXPECT_EQ(judged(steady(kMinute, 5 * kMinute)),
              "amber no_commit: no step for 5 min, 5 times the usual 60.0 s");
    Vitals vitals = steady(kMinute, 30 * kMinute);
    EXPECT_EQ(judged(vitals).substr(0, 5), "amber");
    vitals.replicas.push_back({replica("a", 8, 5 * kSecond), {}});
    EXPECT_EQ(judged(vitals), "red no_commit: no step for 30 min, 30 times the usual 60.0 s");
    vitals.replicas[0].health.summary.status = ReplicaStatus::kStopped;
    EXPECT_EQ(judged(vitals).substr(0, 5), "amber");
}

TEST(Verdict, AReplicaOfUnknownStatusCountsAsOneThatFollows) {
    Vitals vitals = steady(kMinute, 20 * kSecond);
    vitals.replicas.push_back({replica("a", 8, 5 * kSecond), {}});
    vitals.replicas[0].health.summary.status = ReplicaStatus::kUnknown;
    EXPECT_EQ(judged(vitals), "green step 8, 20.0 s ago; 1 replica follows");
    vitals.replicas[0].health.summary.seen_ms = 2 * kMinute;
    EXPECT_EQ(judged(vitals).substr(0, 19), "red replica_silent:");
}

TEST(Verdict, QuickStepsMayPauseForAMinute) {
    EXPECT_EQ(judged(steady(kSecond, 50 * kSecond)).substr(0, 5), "green");
    EXPECT_EQ(judged(steady(kSecond, 70 * kSecond)).substr(0, 5), "amber");
}

TEST(Verdict, MaintenanceIsNoStep) {
    Vitals vitals = steady(kMinute, 10 * kMinute);
    HistoryEntry floor = vitals.commits.back();
    floor.commit.seq = 9;
    floor.previous = "hash8";
    floor.commit.time_ms = kNow;
    floor.makes_state = false;
    vitals.commits.push_back(floor);
    EXPECT_EQ(judged(vitals).substr(0, 5), "amber");
}

TEST(Verdict, ASilentReplicaIsRedForADay) {
    Vitals vitals = steady(kMinute, 20 * kSecond);
    vitals.replicas.push_back({replica("a", 8, 80 * kSecond), {}});
    EXPECT_EQ(judged(vitals).substr(0, 5), "green");
    vitals.replicas[0].health.summary.seen_ms = 4 * kMinute;
    EXPECT_EQ(judged(vitals), "red replica_silent: replica 'a' silent for 4 min");
    vitals.replicas.push_back({replica("b", 8, 10 * kMinute), {}});
    EXPECT_EQ(judged(vitals),
              "red replica_silent: 2 of 2 replicas silent: 'a' silent for 4 min, "
              "'b' silent for 10 min");
    vitals.replicas[0].health.summary.seen_ms = 30 * kHour;
    vitals.replicas[1].health.summary.status = ReplicaStatus::kStopped;
    EXPECT_EQ(judged(vitals), "amber replica_silent: replica 'a' silent for 30.0 h");
}

TEST(Verdict, AReplicaThatStaysBehindIsAmberAndNamedWhenItFallsBack) {
    Vitals vitals = steady(kMinute, 20 * kSecond);
    vitals.replicas.push_back({replica("a", 5, 5 * kSecond), {}});
    EXPECT_EQ(judged(vitals), "amber replica_behind: replica 'a' 3 steps behind");
    for (const std::uint64_t lag : {1U, 2U, 3U}) {
        vitals.replicas[0].beats.push_back({kNow, 8 - lag, lag, {}});
    }
    EXPECT_EQ(judged(vitals), "amber lag_growing: replica 'a' falls behind: 1, 2, 3 steps");
    vitals.replicas[0].beats[1].lag_steps = 1;
    EXPECT_EQ(judged(vitals), "amber replica_behind: replica 'a' 3 steps behind");
    vitals.replicas.front() = {replica("a", 7, 5 * kSecond), {}};
    EXPECT_EQ(judged(vitals, {{}, 0}),
              "red replica_behind: replica 'a' 1 step behind, 0 are allowed");
}

TEST(Verdict, ACertificateIsAmberBeforeItEndsAndRedInTheLastHours) {
    Vitals vitals = steady(kMinute, 20 * kSecond);
    vitals.commits.back().certificate_ends_ms = kNow + 72 * kHour;
    EXPECT_EQ(judged(vitals).substr(0, 5), "green");
    vitals.commits.back().certificate_ends_ms = kNow + 20 * kHour;
    EXPECT_EQ(judged(vitals),
              "amber certificate_ending: the signer's certificate ends in 20.0 h: renew it");
    vitals.commits.back().certificate_ends_ms = kNow + 2 * kHour;
    EXPECT_EQ(judged(vitals).substr(0, 22), "red certificate_ending");
}

TEST(Verdict, AnExpiredCommitIsRed) {
    Vitals vitals = steady(kMinute, 20 * kSecond);
    vitals.commits.back().expires_ms = kNow - kHour;
    EXPECT_EQ(judged(vitals),
              "red expired: the newest commit expired 60 min ago: the trainer is gone, or newer "
              "commits are withheld");
}

TEST(Verdict, ABrokenChainIsRedBeforeAnythingElse) {
    Vitals vitals = steady(kMinute, 5 * kMinute);
    vitals.commits[4].previous = "another";
    EXPECT_EQ(judged(vitals),
              "red chain_broken: the chain of commits is broken: commit 5 does not "
              "follow commit 4; 1 more");
}

TEST(Verdict, LimitsOfOnesOwnAreRed) {
    Vitals vitals = steady(kMinute, 2 * kMinute);
    EXPECT_EQ(judged(vitals, {90 * kSecond, {}}),
              "red no_commit: no step for 2 min, 90.0 s is allowed");
    vitals.replicas.push_back({replica("a", 5, 5 * kSecond), {}});
    EXPECT_EQ(judged(vitals, {{}, 2}),
              "red replica_behind: replica 'a' 3 steps behind, 2 are allowed");
    EXPECT_EQ(judged(vitals, {{}, 1}),
              "red replica_behind: replica 'a' 3 steps behind, 1 is allowed");
    EXPECT_EQ(judged(vitals, {{}, 3}), "amber replica_behind: replica 'a' 3 steps behind");
}

TEST(Verdict, OfAnErrorSaysWhy) {
    EXPECT_EQ(verdict_of({ErrorKind::kForked, "two histories"}).concerns[0].cause,
              ConcernCause::kChainBroken);
    EXPECT_EQ(verdict_of({ErrorKind::kDenied, "no"}).concerns[0].cause, ConcernCause::kUnreadable);
}

class VerdictOfARun : public ::testing::Test {
  protected:
    VerdictOfARun() {
        value_of(init_run(run_, {}));
        Publisher publisher = value_of(Publisher::open(run_, *baseline_, {}));
        for (std::size_t i = 0; i < 5; ++i) {
            value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(i))), i));
        }
    }
    CheckpointSteps steps_{6};
    std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>(system_clock());
    Location run_{store_, "runs/a", "memory:a"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
};

TEST_F(VerdictOfARun, IsInItsStatus) {
    EXPECT_EQ(value_of(read_status(run_, {})).verdict.severity, Severity::kOk);
    value_of(tell_replica(run_, {}, {"east", 0, ReplicaStatus::kJoining, {}, 1}));
    store_->put("unrelated", {}).value();
    const auto status = value_of(read_status(run_, {}, false, std::nullopt));
    EXPECT_TRUE(status.verdict.text.empty());
}

TEST_F(VerdictOfARun, StaysAStatusWhenTheChainIsBroken) {
    const auto commits = value_of(store_->list(run_.key("commits/"), "", 10));
    value_of(store_->remove(commits[2].key));
    const auto status = value_of(read_status(run_, {}));
    EXPECT_EQ(status.head->step, 4U);
    EXPECT_EQ(status.verdict.severity, Severity::kCritical);
    EXPECT_EQ(status.verdict.concerns[0].cause, ConcernCause::kChainBroken);
}

}  // namespace
}  // namespace wisp::testing
