// Publishing behind the trainer's back, with a store whose uploads wait for the test.
#include <gtest/gtest.h>

#include "checkpoint_steps.hpp"
#include "gated_store.hpp"
#include "store/memory_store.hpp"
#include "wisp/async_publisher.hpp"
#include "wisp/follower.hpp"

namespace wisp::testing {
namespace {

class Async : public ::testing::Test {
  protected:
    Async() { value_of(init_run(run_, {})); }
    ~Async() override { store_->open(); }

    Checkpoint state(std::size_t i) { return value_of(Checkpoint::open(steps_.state(i))); }
    AsyncPublisher start() {
        baseline_ = value_of(open_memory_replica());
        return value_of(AsyncPublisher::start(value_of(Publisher::open(run_, *baseline_, {})),
                                              [&](const Result<PublishReport>& report) {
                                                  if (report) committed_.push_back(report->step);
                                              }));
    }
    StateDigest joined() {
        auto replica = value_of(open_memory_replica());
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        value_of(follower.catch_up());
        return value_of(digest_of(*replica->weights()));
    }

    CheckpointSteps steps_{8};
    std::shared_ptr<GatedStore> store_ =
        std::make_shared<GatedStore>(std::make_shared<MemoryStore>(system_clock()));
    Location run_{store_, "run", "gated:run"};
    std::unique_ptr<Replica> baseline_;
    std::vector<std::uint64_t> committed_;  // written by the uploading thread, read after flush()
};

TEST_F(Async, EveryStepIsCommittedInOrder) {
    AsyncPublisher publisher = start();
    for (std::size_t i = 0; i < 8; ++i) {
        value_of(publisher.submit(state(i), i));
        value_of(publisher.flush());
    }
    EXPECT_EQ(committed_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(joined(), steps_.digest(7));
}

TEST_F(Async, StepsThatWaitAreFoldedIntoTheNewest) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->close();
    value_of(publisher.submit(state(1), 1));
    store_->await_arrival();
    EXPECT_FALSE(value_of(publisher.submit(state(2), 2)).folded);
    EXPECT_TRUE(value_of(publisher.submit(state(3), 3)).folded);
    EXPECT_TRUE(value_of(publisher.submit(state(4), 4)).folded);
    store_->open();
    value_of(publisher.flush());
    EXPECT_EQ(committed_, (std::vector<std::uint64_t>{0, 1, 4}));
    EXPECT_EQ(joined(), steps_.digest(4));
    value_of(publisher.submit(state(5), 5));
    value_of(publisher.flush());
    EXPECT_EQ(joined(), steps_.digest(5));
}

TEST_F(Async, ALostAnswerIsFoundOut) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->lose_answers(1);
    value_of(publisher.submit(state(1), 1));
    while (!publisher.flush()) {
    }
    value_of(publisher.submit(state(2), 2));
    while (!publisher.flush()) {
    }
    EXPECT_EQ(committed_, (std::vector<std::uint64_t>{0, 1, 2}));
    EXPECT_EQ(joined(), steps_.digest(2));
}

TEST_F(Async, ATakenOverRunIsLeftForGood) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    auto other = value_of(open_memory_replica());
    Publisher second = value_of(Publisher::open(run_, *other, {}));
    value_of(publisher.submit(state(1), 1));
    EXPECT_EQ(outcome_of(publisher.flush()), "fenced");
    EXPECT_EQ(outcome_of(publisher.submit(state(2), 2)), "fenced");
    value_of(second.publish(state(3), 3));
    EXPECT_EQ(joined(), steps_.digest(3));
}

}  // namespace
}  // namespace wisp::testing
