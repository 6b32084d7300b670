// A free account of the Hugging Face Hub has 1,000 calls in five minutes, for all its replicas.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "doubles/metered_store.hpp"
#include "manual_clock.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp::testing {
namespace {

constexpr std::uint64_t kCalls = 1'000;
constexpr std::int64_t kWindowMs = 300'000;
constexpr std::uint64_t kReplicas = 16;

/// Objects in memory, on the terms of the Hub.
class HubLikeStore : public MeteredStore {
  public:
    using MeteredStore::MeteredStore;
    StoreTerms terms() const override {
        ::setenv("HF_S3_ENDPOINT", "http://127.0.0.1:1", 1);
        ::setenv("HF_S3_ACCESS_KEY_ID", "HFAK", 1);
        ::setenv("HF_S3_SECRET_ACCESS_KEY", "x", 1);
        return value_of(open_location("hf://buckets/acme/weights")).store->terms();
    }
};

/// Time passes while the follower sleeps, and the trainer's steps happen in it.
class TrainingClock : public ManualClock {
  public:
    void sleep_for(Milliseconds duration) override {
        const std::int64_t end = now_ms() + duration.count();
        while (next_ms <= end && on_step) {
            advance(Milliseconds(next_ms - now_ms()));
            next_ms += every_ms;
            on_step();
        }
        advance(Milliseconds(end - now_ms()));
    }
    std::int64_t next_ms = INT64_MAX;
    std::int64_t every_ms = 0;
    std::function<void()> on_step;
};

/// A run in memory with its first step, and a trainer whose further steps the clock brings.
struct TimedRun {
    TimedRun() {
        timed.clock = clock;
        timed.seed = 7;
        value_of(init_run(run, {}));
        PublishOptions publishing;
        publishing.run = timed;
        publisher.emplace(value_of(Publisher::open(run, *baseline, publishing)));
        publish();
    }
    void publish() {
        value_of(publisher->publish(value_of(Checkpoint::open(steps.state(step % 8))), step));
        ++step;
    }
    void go_on(std::int64_t first_after_ms, std::int64_t every_ms) {
        clock->every_ms = every_ms;
        clock->next_ms = clock->now_ms() + first_after_ms;
        clock->on_step = [this] { publish(); };
    }

    CheckpointSteps steps{8};
    std::shared_ptr<TrainingClock> clock = std::make_shared<TrainingClock>();
    std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>(clock);
    Location run{memory, "run", "memory:run"};
    RunOptions timed;
    std::unique_ptr<Replica> baseline = value_of(open_memory_replica());
    std::optional<Publisher> publisher;
    std::uint64_t step = 0;
};

/// Calls in five minutes of one follower that beats its heart, when a step is made so often.
std::uint64_t calls_of_a_follower(std::int64_t step_every_ms) {
    TimedRun training;
    const auto& clock = training.clock;
    const auto metered = std::make_shared<HubLikeStore>(training.memory);
    auto replica = value_of(open_memory_replica());
    FollowOptions following;
    following.run = training.timed;
    following.replica_id = "one";
    const std::int64_t begun = clock->now_ms() + kWindowMs;
    std::uint64_t before = 0;
    bool ended = false;
    following.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.kind != FollowEvent::Kind::kWaiting) return {};
        if (before == 0 && clock->now_ms() >= begun) before = metered->counts().requests();
        ended = clock->now_ms() >= begun + kWindowMs;
        return ended ? Result<void>(fail(ErrorKind::kInternal, "enough")) : Result<void>();
    };
    training.go_on(step_every_ms, step_every_ms);
    Follower follower = value_of(Follower::open({metered, "run", "hub"}, *replica, following));
    EXPECT_FALSE(follower.follow());
    EXPECT_TRUE(ended);
    EXPECT_LE(follower.at().step + 2, training.step + 1) << "it went along";
    EXPECT_GE(follower.at().step + 2, training.step) << "it kept up";
    return metered->counts().requests() - before;
}

TEST(HubPace, SixteenReplicasKeepWithinTheFreeLimit) {
    for (const std::int64_t every_ms : {20'000, 30'000, 60'000, 100'000'000}) {
        const std::uint64_t calls = calls_of_a_follower(every_ms);
        RecordProperty("step_every_" + std::to_string(every_ms / 1000) + "_s",
                       static_cast<int>(calls));
        // The publisher's: the delta, the commit, the hint; now and then an anchor.
        const auto published = 4 * static_cast<std::uint64_t>(kWindowMs / every_ms);
        EXPECT_LT(calls * kReplicas + published, kCalls)
            << calls << " calls at a step every " << every_ms / 1000 << " s";
    }
}

TEST(FollowPace, TheWaitBeforeTheFirstStepIsNoMeasureForTheNext) {
    TimedRun training;
    // Servers take a minute to start; then there is a step every second.
    training.go_on(60'000, 1'000);
    auto replica = value_of(open_memory_replica());
    FollowOptions following;
    following.run = training.timed;
    following.poll = Milliseconds(250);
    following.until_step = 6;
    std::int64_t oldest = 0;
    following.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.step > 0) oldest = std::max(oldest, event.commit_age_ms);
        return {};
    };
    Follower follower = value_of(Follower::open(training.run, *replica, following));
    EXPECT_TRUE(value_of(follower.follow()).reached_until);
    EXPECT_LT(oldest, 2'000);
}

}  // namespace
}  // namespace wisp::testing
