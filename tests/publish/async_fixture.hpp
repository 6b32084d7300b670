// An asynchronous publisher on a store that does what the test says.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "gated_store.hpp"
#include "wisp/async_publisher.hpp"
#include "wisp/follower.hpp"

namespace wisp::testing {

class AsyncFixture : public ::testing::Test {
  protected:
    AsyncFixture() { value_of(init_run(run_, {})); }
    ~AsyncFixture() override {
        store_->refuse(false);
        store_->hold_reads(false);
        store_->open();
    }

    Checkpoint state(std::size_t i) { return value_of(Checkpoint::open(steps_.state(i))); }
    AsyncPublisher start(const PublishOptions& options = {}) {
        baseline_ = value_of(open_memory_replica());
        return start_on(*baseline_, options);
    }
    AsyncPublisher start_on(Replica& baseline, const PublishOptions& options = {}) {
        return value_of(AsyncPublisher::start(
            value_of(Publisher::open(run_, baseline, options)),
            [&](const Result<PublishReport>& report) { return hear(report); }));
    }
    Result<void> hear(const Result<PublishReport>& report) {
        const std::lock_guard lock(mutex_);
        if (!report) {
            ++failures_;
        } else if (report->kind == CommitKind::kHeartbeat) {
            ++heartbeats_;
        } else {
            committed_.push_back(report->step);
            reports_.push_back(*report);
        }
        heard_.notify_all();
        return std::exchange(answer_, {});
    }
    void await_failures(std::size_t count) {
        std::unique_lock lock(mutex_);
        heard_.wait(lock, [&] { return failures_ >= count; });
    }
    void await_heartbeats(std::size_t count) {
        std::unique_lock lock(mutex_);
        heard_.wait(lock, [&] { return heartbeats_ >= count; });
    }
    StateDigest joined() {
        auto replica = value_of(open_memory_replica());
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        value_of(follower.catch_up());
        return value_of(digest_of(*replica->weights()));
    }

    static constexpr Milliseconds kLong{60'000};
    CheckpointSteps steps_{8};
    std::shared_ptr<GatedStore> store_ =
        std::make_shared<GatedStore>(std::make_shared<MemoryStore>(system_clock()));
    Location run_{store_, "run", "gated:run"};
    std::unique_ptr<Replica> baseline_;
    std::mutex mutex_;
    std::condition_variable heard_;
    Result<void> answer_;  // of the listener, next
    // Told by the uploading thread; complete after flush().
    std::size_t failures_ = 0;
    std::size_t heartbeats_ = 0;
    std::vector<std::uint64_t> committed_;
    std::vector<PublishReport> reports_;
};

}  // namespace wisp::testing
