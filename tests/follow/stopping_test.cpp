// Followers end when they are asked to: by a token of their own, or by the code that listens to
// them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "store/retry_store.hpp"
#include "wisp/control.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp::testing {
namespace {

/// Objects in memory, until it is told to be away.
class AwayStore : public MemoryStore {
  public:
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        if (on_ask) on_ask();
        if (!away) return MemoryStore::read(key, offset, into);
        return std::unexpected(Error{ErrorKind::kUnavailable, "away", 600'000U});
    }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        if (away) return fail(ErrorKind::kUnavailable, "away");
        return MemoryStore::list(prefix, after, limit);
    }
    std::atomic<bool> away = false;
    std::function<void()> on_ask;
};

class Stopping : public ::testing::Test {
  protected:
    Stopping() {
        value_of(init_run(run_, {}));
        const PublishOptions options;
        publisher_.emplace(value_of(Publisher::open(run_, *baseline_, options)));
        publish(0);
    }
    void publish(std::size_t step) {
        value_of(publisher_->publish(value_of(Checkpoint::open(steps_.state(step))), step));
    }
    FollowOptions until(std::optional<std::uint64_t> step, std::stop_token stop) {
        FollowOptions options;
        options.run.stop = std::move(stop);
        options.until_step = step;
        options.poll = Milliseconds(1);
        return options;
    }

    CheckpointSteps steps_{3};
    std::shared_ptr<AwayStore> store_ = std::make_shared<AwayStore>();
    Location run_{store_, "runs/a", "memory:a"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::optional<Publisher> publisher_;
};

TEST_F(Stopping, OneFollowerGoesOnWhenAnotherIsStopped) {
    std::stop_source first_stop;
    std::stop_source second_stop;
    auto first_replica = value_of(open_memory_replica());
    auto second_replica = value_of(open_memory_replica());
    Follower first =
        value_of(Follower::open(run_, *first_replica, until(std::nullopt, first_stop.get_token())));
    Follower second =
        value_of(Follower::open(run_, *second_replica, until(2, second_stop.get_token())));
    Result<FollowReport> first_report;
    Result<FollowReport> second_report;
    std::jthread first_thread([&] { first_report = first.follow(); });
    std::jthread second_thread([&] { second_report = second.follow(); });
    first_stop.request_stop();
    first_thread.join();
    EXPECT_LT(first.at().step, 1U);
    publish(1);
    publish(2);
    second_thread.join();
    EXPECT_TRUE(value_of(second_report).reached_until);
    EXPECT_LT(first.at().step, 1U);
}

TEST_F(Stopping, AStopWhileItLooksIsAnEndLikeAnyOther) {
    for (int reads_before = 0; reads_before < 6; ++reads_before) {
        std::stop_source stop;
        auto replica = value_of(open_memory_replica());
        Follower follower =
            value_of(Follower::open(run_, *replica, until(std::nullopt, stop.get_token())));
        int reads = 0;
        store_->on_ask = [&] {
            if (reads++ == reads_before) stop.request_stop();
        };
        EXPECT_EQ(outcome_of(follower.follow()), "ok") << reads_before;
        store_->on_ask = nullptr;
    }
}

TEST_F(Stopping, AStopWhileItLooksAtTrlsLayoutIsAnEndLikeAnyOther) {
    const Location where{store_, "trl", "memory:trl"};
    auto baseline = value_of(open_memory_replica());
    value_of(publish_trl(where, *baseline, value_of(Checkpoint::open(steps_.state(0))), 0));
    std::stop_source stop;
    auto replica = value_of(open_memory_replica());
    Follower follower =
        value_of(open_trl_follower(where, *replica, until(std::nullopt, stop.get_token())));
    store_->on_ask = [&] {
        stop.request_stop();
        store_->away = true;
    };
    EXPECT_EQ(outcome_of(follower.follow()), "ok");
}

TEST_F(Stopping, ARetryDoesNotOutlastTheStop) {
    std::stop_source stop;
    const Location patient{std::make_shared<RetryStore>(store_), run_.prefix, run_.url};
    auto replica = value_of(open_memory_replica());
    Follower follower =
        value_of(Follower::open(patient, *replica, until(std::nullopt, stop.get_token())));
    value_of(follower.catch_up());
    store_->on_ask = [&] { stop.request_stop(); };
    store_->away = true;
    const auto start = std::chrono::steady_clock::now();
    (void)follower.follow();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    EXPECT_TRUE(stop.stop_requested());
}

TEST_F(Stopping, WhoListensIsHeardWhileTheStoreIsAway) {
    for (const ErrorKind kind : {ErrorKind::kInternal, ErrorKind::kUnavailable}) {
        auto replica = value_of(open_memory_replica());
        FollowOptions options = until(std::nullopt, {});
        options.on_event = [&](const FollowEvent& event) -> Result<void> {
            if (event.kind == FollowEvent::Kind::kFault) return fail(kind, "enough");
            return {};
        };
        Follower follower = value_of(Follower::open(run_, *replica, options));
        value_of(follower.catch_up());
        store_->away = true;
        const auto ended = follower.follow();
        EXPECT_EQ(outcome_of(ended), name_of(kind));
        EXPECT_EQ(text_of(ended), "enough");
        store_->away = false;
    }
}

TEST_F(Stopping, WhatAListenerFailsWithIsNotWorkedAround) {
    auto replica = value_of(open_memory_replica());
    int told = 0;
    FollowOptions options = until(std::nullopt, {});
    options.on_event = [&](const FollowEvent&) -> Result<void> {
        ++told;
        return fail(ErrorKind::kWrongBase, "mine");
    };
    Follower follower = value_of(Follower::open(run_, *replica, options));
    const auto ended = follower.catch_up();
    EXPECT_EQ(outcome_of(ended), "wrong_base");
    EXPECT_EQ(text_of(ended), "mine");
    EXPECT_EQ(told, 1);
    EXPECT_EQ(value_of(digest_of(*replica->weights())), steps_.digest(0));
}

TEST_F(Stopping, WhoListensToTrlIsHeardWhileTheStoreIsAway) {
    const Location where{store_, "trl", "memory:trl"};
    auto baseline = value_of(open_memory_replica());
    value_of(publish_trl(where, *baseline, value_of(Checkpoint::open(steps_.state(0))), 0));
    auto replica = value_of(open_memory_replica());
    FollowOptions options = until(std::nullopt, {});
    options.on_event = [](const FollowEvent& event) -> Result<void> {
        if (event.kind == FollowEvent::Kind::kFault) return fail(ErrorKind::kCorrupt, "enough");
        return {};
    };
    Follower follower = value_of(open_trl_follower(where, *replica, options));
    value_of(follower.catch_up());
    store_->away = true;
    const auto ended = follower.follow();
    EXPECT_EQ(outcome_of(ended), "corrupt");
    EXPECT_EQ(text_of(ended), "enough");
}

}  // namespace
}  // namespace wisp::testing
