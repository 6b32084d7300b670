// A run that was deleted, or that the store refuses to show, is a fault and no "nothing new".
#include <gtest/gtest.h>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "manual_clock.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"

namespace wisp::testing {
namespace {

/// Answers as asked: with what it holds, as if it held nothing, or with a refusal.
class MoodyStore : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    enum class Mood { kFine, kEmpty, kDenied };
    Mood mood = Mood::kFine;
    int written_while_empty = 0;

    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        if (mood != Mood::kFine) return std::unexpected(refusal(key));
        return MemoryStore::read(key, offset, into);
    }
    Result<ObjectInfo> head(const std::string& key) override {
        if (mood != Mood::kFine) return std::unexpected(refusal(key));
        return MemoryStore::head(key);
    }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
        if (mood == Mood::kDenied) return std::unexpected(refusal(key));
        if (mood == Mood::kEmpty) ++written_while_empty;
        return MemoryStore::put(key, bytes);
    }

  private:
    Error refusal(const std::string& key) const {
        return {mood == Mood::kEmpty ? ErrorKind::kNotFound : ErrorKind::kDenied, key};
    }
};

class VanishedRun : public ::testing::Test {
  protected:
    VanishedRun() {
        value_of(init_run(run_, {}));
        publisher_.emplace(value_of(Publisher::open(run_, *baseline_, {})));
        publish(0);
        options_.run.clock = clock_;
        options_.replica_id = "gpu-1";
    }

    void publish(std::size_t step) {
        value_of(publisher_->publish(value_of(Checkpoint::open(steps_.state(step))), step));
    }

    /// Follows; the store is in this mood from the first wait on, until a fault was told. Returns
    /// the kind of that fault, and how long it took.
    std::pair<ErrorKind, std::int64_t> fault_of(MoodyStore::Mood mood) {
        std::optional<ErrorKind> told;
        std::int64_t begun = 0;
        std::int64_t took = 0;
        std::stop_source stop;
        options_.run.stop = stop.get_token();
        options_.on_event = [&](const FollowEvent& event) -> Result<void> {
            if (event.kind == FollowEvent::Kind::kWaiting && begun == 0) {
                begun = clock_->now_ms();
                store_->mood = mood;
            } else if (event.kind == FollowEvent::Kind::kFault && !told) {
                told = event.fault_kind;
                took = clock_->now_ms() - begun;
                store_->mood = MoodyStore::Mood::kFine;
                publish(1);
            } else if (event.step == 1) {
                stop.request_stop();
            }
            return {};
        };
        auto replica = value_of(open_memory_replica());
        Follower follower = value_of(Follower::open(run_, *replica, options_));
        value_of(follower.follow());
        EXPECT_EQ(follower.at().step, 1U);
        return {told.value_or(ErrorKind::kInternal), took};
    }

    CheckpointSteps steps_{2};
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<MoodyStore> store_ = std::make_shared<MoodyStore>(system_clock());
    Location run_{store_, "runs/a", "memory:a"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::optional<Publisher> publisher_;
    FollowOptions options_;
};

TEST_F(VanishedRun, IsAFaultWithinAMinuteAndFollowedAgainWhenItIsBack) {
    const auto [kind, took] = fault_of(MoodyStore::Mood::kEmpty);
    EXPECT_EQ(kind, ErrorKind::kNoRun);
    EXPECT_LE(took, 60'000);
    EXPECT_EQ(store_->written_while_empty, 0) << "a heartbeat brought the prefix back";
}

TEST_F(VanishedRun, ASpellOfRefusalsIsAFaultAndNoEnd) {
    const auto [kind, took] = fault_of(MoodyStore::Mood::kDenied);
    EXPECT_EQ(kind, ErrorKind::kDenied);
    EXPECT_LE(took, 60'000);
}

TEST_F(VanishedRun, IsNoticedByThoseWhoOnlyWatch) {
    RunWatch watch = value_of(RunWatch::open(run_, options_.run));
    EXPECT_TRUE(value_of(watch.newest()).has_value());
    store_->mood = MoodyStore::Mood::kEmpty;
    clock_->advance(Milliseconds(21'000));
    EXPECT_EQ(outcome_of(watch.newest()), "no_run");
    store_->mood = MoodyStore::Mood::kFine;
    EXPECT_TRUE(value_of(watch.newest()).has_value());
}

}  // namespace
}  // namespace wisp::testing
