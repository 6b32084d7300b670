// Publishing in the background, with a store whose uploads wait for the test.
#include "async_fixture.hpp"

namespace wisp::testing {
namespace {

class Async : public AsyncFixture {};

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
