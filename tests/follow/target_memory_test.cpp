// Weights that others own: they are the replica, go back a step, and take deltas all or none.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp::testing {
namespace {

/// A server's own tensors.
class ServedWeights : public MutableWeights {
  public:
    explicit ServedWeights(const Schema& schema) : schema_(schema) {
        for (const TensorInfo& tensor : schema.tensors()) {
            tensors_.emplace_back(static_cast<std::size_t>(value_of(byte_count_of(tensor))));
        }
    }
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return tensors_[tensor]; }
    std::span<std::byte> writable_bytes(std::size_t tensor) override { return tensors_[tensor]; }

  private:
    Schema schema_;
    std::vector<std::vector<std::byte>> tensors_;
};

class TargetMemory : public ::testing::Test {
  protected:
    TargetMemory() {
        value_of(init_run(run_, {}));
        options_.keep_previous = true;
        options_.target = [this](const Schema&) -> Result<std::shared_ptr<MutableWeights>> {
            return served_;
        };
    }
    Checkpoint state(std::size_t i) { return value_of(Checkpoint::open(steps_.state(i))); }
    std::string held() { return to_text(value_of(digest_of(*served_))); }
    std::string wanted(std::size_t i) { return to_text(steps_.digest(i)); }
    /// Publishes states 0 to 2, and lets `replica` follow one after the other.
    void follow_three(Replica& replica) {
        auto baseline = value_of(open_memory_replica());
        Publisher publisher = value_of(Publisher::open(run_, *baseline, {}));
        Follower follower = value_of(Follower::open(run_, replica, {}));
        for (std::size_t i = 0; i < 3; ++i) {
            value_of(publisher.publish(state(i), i));
            value_of(follower.catch_up());
            EXPECT_EQ(held(), wanted(i));
        }
    }

    CheckpointSteps steps_{6};
    TempFolder folder_;
    Location run_{std::make_shared<MemoryStore>(system_clock()), "runs/a", "memory:a"};
    std::shared_ptr<ServedWeights> served_ = std::make_shared<ServedWeights>(state(0).schema());
    MemoryReplicaOptions options_;
};

TEST_F(TargetMemory, IsTheReplica) {
    auto replica = value_of(open_memory_replica(options_));
    follow_three(*replica);
    EXPECT_EQ(replica->weights(), served_.get());
}

TEST_F(TargetMemory, GoesBackOneStepAndForthAgain) {
    auto replica = value_of(open_memory_replica(options_));
    EXPECT_EQ(outcome_of(replica->step_back()), "not_found");
    follow_three(*replica);
    value_of(replica->step_back());
    EXPECT_EQ(held(), wanted(1));
    EXPECT_EQ(outcome_of(replica->step_back()), "not_found");
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    EXPECT_EQ(follower.at().step, 1U);
    value_of(follower.catch_up());
    EXPECT_EQ(held(), wanted(2));
    EXPECT_EQ(outcome_of(value_of(open_memory_replica())->step_back()), "unsupported");
}

TEST_F(TargetMemory, IsPutBackWhenTheMoveIsRefused) {
    bool refuse = false;
    options_.on_move = [&](const ReplicaMove& move) -> Result<void> {
        EXPECT_FALSE(move.blocks->empty());
        if (refuse) return fail(ErrorKind::kInternal, "the device is full");
        return {};
    };
    auto replica = value_of(open_memory_replica(options_));
    follow_three(*replica);
    refuse = true;
    EXPECT_EQ(outcome_of(replica->step_back()), "internal");
    EXPECT_EQ(held(), wanted(2));
    value_of(diff(state(2), state(3), folder_ / "delta"));
    ReplicaRecord after = *value_of(replica->load());
    after.state = steps_.digest(3);
    EXPECT_EQ(outcome_of(replica->apply({folder_ / "delta"}, after)), "internal");
    EXPECT_EQ(held(), wanted(2));
}

TEST_F(TargetMemory, IsMendedWhereOthersWroteToIt) {
    auto replica = value_of(open_memory_replica(options_));
    follow_three(*replica);
    for (std::size_t i = 0; i < served_->schema().tensors().size(); ++i) {
        for (std::byte& byte : served_->writable_bytes(i)) byte ^= std::byte{1};
    }
    auto baseline = value_of(open_memory_replica());
    Publisher publisher = value_of(Publisher::open(run_, *baseline, {}));
    value_of(publisher.publish(state(3), 3));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    EXPECT_EQ(held(), wanted(3));
}

TEST_F(TargetMemory, TakesDeltasAllOrNone) {
    value_of(diff(state(0), state(1), folder_ / "d1"));
    value_of(diff(static_cast<const Weights&>(state(1)), state(2), folder_ / "d2"));
    EXPECT_EQ(outcome_of(apply_in_memory(*served_, {folder_ / "d1"})), "wrong_base");
    const Checkpoint first = state(0);
    for (std::size_t i = 0; i < first.schema().tensors().size(); ++i) {
        std::ranges::copy(first.bytes(i), served_->writable_bytes(i).begin());
    }
    const ApplyReport report =
        value_of(apply_in_memory(*served_, {folder_ / "d1", folder_ / "d2"}));
    EXPECT_TRUE(report.base_proven && report.result_proven);
    EXPECT_EQ(report.result, steps_.digest(2));
    EXPECT_EQ(held(), wanted(2));
    EXPECT_EQ(value_of(apply_in_memory(*served_, {folder_ / "d1", folder_ / "d2"})).deltas_skipped,
              2U);
    std::stop_source source;
    source.request_stop();
    ApplyOptions stopped;
    stopped.stop = source.get_token();
    EXPECT_EQ(outcome_of(apply_in_memory(*served_, {folder_ / "d1"}, stopped)), "unavailable");
    EXPECT_EQ(held(), wanted(2));
}

TEST_F(TargetMemory, IsNotTouchedWhenItCannotBeEntered) {
    bool open = true;
    options_.enter = [&]() -> Result<std::shared_ptr<void>> {
        if (!open) return fail(ErrorKind::kInternal, "the lock is lost");
        return std::shared_ptr<void>();
    };
    for (const bool keeps : {true, false}) {
        options_.keep_previous = keeps;
        auto replica = value_of(open_memory_replica(options_));
        open = true;
        follow_three(*replica);
        open = false;
        value_of(diff(state(2), state(3), folder_ / "delta"));
        ReplicaRecord after = *value_of(replica->load());
        after.state = steps_.digest(3);
        EXPECT_EQ(text_of(keeps ? replica->step_back() : replica->overwrite({}, after)),
                  "the lock is lost");
        EXPECT_EQ(text_of(replica->apply({folder_ / "delta"}, after)), "the lock is lost");
        EXPECT_EQ(held(), wanted(2));
        fs::create_directories(folder_ / "incoming");
        fs::copy_file(steps_.state(3), folder_ / "incoming" / "model.safetensors",
                      fs::copy_options::overwrite_existing);
        EXPECT_EQ(text_of(replica->adopt(folder_ / "incoming", after)), "the lock is lost");
        EXPECT_EQ(held(), wanted(2));
        EXPECT_EQ(value_of(replica->load())->state, steps_.digest(2));
        run_.prefix += "/next";
        value_of(init_run(run_, {}));
    }
}

TEST_F(TargetMemory, IsNotTouchedByDeltasThatLeadElsewhereThanTheirCommitSays) {
    for (const bool keeps : {true, false}) {
        options_.keep_previous = keeps;
        auto replica = value_of(open_memory_replica(options_));
        follow_three(*replica);
        value_of(diff(state(2), state(3), folder_ / "delta"));
        ReplicaRecord after = *value_of(replica->load());
        after.state = steps_.digest(4);
        EXPECT_EQ(outcome_of(replica->apply({folder_ / "delta"}, after)), "corrupt");
        EXPECT_EQ(held(), wanted(2));
        EXPECT_EQ(value_of(replica->load())->state, steps_.digest(2));
        run_.prefix += "/next";
        value_of(init_run(run_, {}));
    }
}

}  // namespace
}  // namespace wisp::testing
