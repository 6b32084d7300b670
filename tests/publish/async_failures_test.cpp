// What flush() says when things go wrong in the background.
#include <chrono>

#include "async_fixture.hpp"

namespace wisp::testing {
namespace {

using Steps = std::vector<std::uint64_t>;

class AsyncFailures : public AsyncFixture {};

/// A baseline in memory that cannot follow when told so.
class StumblingReplica : public Replica {
  public:
    std::string label() const override { return inner_->label(); }
    const Weights* weights() const override { return inner_->weights(); }
    bool in_doubt() const override { return inner_->in_doubt(); }
    std::filesystem::path scratch() const override { return inner_->scratch(); }
    Result<std::optional<ReplicaRecord>> load() override { return inner_->load(); }
    Result<void> save(const ReplicaRecord& record) override { return inner_->save(record); }
    Result<ApplyReport> apply(const std::vector<std::filesystem::path>& deltas,
                              const ReplicaRecord& after) override {
        return inner_->apply(deltas, after);
    }
    Result<void> overwrite(std::span<const MovedBlock> changes,
                           const ReplicaRecord& after) override {
        if (throw_next_.exchange(false)) throw std::bad_alloc();
        if (fail_next_.exchange(false)) return fail(ErrorKind::kNoSpace, "no room");
        return inner_->overwrite(changes, after);
    }
    Result<void> adopt(const std::filesystem::path& folder, const ReplicaRecord& after) override {
        return inner_->adopt(folder, after);
    }
    Result<void> discard() override { return inner_->discard(); }

    std::atomic<bool> fail_next_ = false;
    std::atomic<bool> throw_next_ = false;

  private:
    std::unique_ptr<Replica> inner_ = value_of(open_memory_replica());
};

TEST_F(AsyncFailures, ACommitThatLandsLateCostsNoStep) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->delay_next();
    value_of(publisher.submit(state(1), 1));
    await_failures(1);
    store_->land().value();
    store_->refuse(false);
    value_of(publisher.submit(state(2), 2));
    value_of(publisher.flush_within(kLong));
    EXPECT_EQ(committed_, (Steps{0, 1, 2}));
    EXPECT_EQ(joined(), steps_.digest(2));
}

TEST_F(AsyncFailures, ACommitThatLandsWhileItIsRepeatedCostsNoStep) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->delay_next();
    value_of(publisher.submit(state(1), 1));
    await_failures(1);
    store_->close();
    store_->refuse(false);
    value_of(publisher.submit(state(2), 2));
    store_->await_arrival();
    store_->land().value();
    store_->open();
    value_of(publisher.flush_within(kLong));
    EXPECT_EQ(committed_, (Steps{0, 1, 2}));
    EXPECT_EQ(joined(), steps_.digest(2));
    value_of(publisher.submit(state(3), 3));
    value_of(publisher.flush());
    EXPECT_EQ(joined(), steps_.digest(3));
}

TEST_F(AsyncFailures, EveryRetryPausesEvenWithAStepWaiting) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->delay_next();
    value_of(publisher.submit(state(1), 1));
    await_failures(1);
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t before = store_->requests();
    for (std::size_t step = 2; step < 6; ++step) value_of(publisher.submit(state(step), step));
    await_failures(4);
    // 200 ms may have begun before; 400 and 800 have not.
    EXPECT_GE(std::chrono::steady_clock::now() - begin, Milliseconds(1'200));
    EXPECT_LE(store_->requests() - before, 12U);
    EXPECT_NE(text_of(publisher.flush()).find("step 5 is not committed"), std::string::npos);
    store_->refuse(false);
    value_of(publisher.flush_within(kLong));
    EXPECT_EQ(committed_.back(), 5U);
    EXPECT_EQ(joined(), steps_.digest(5));
}

TEST_F(AsyncFailures, AFirstStateThatCouldNotBeSentIsNamedUntilALaterOneIs) {
    AsyncPublisher publisher = start();
    store_->refuse(true);
    EXPECT_EQ(outcome_of(publisher.submit(state(0), 4)), "unavailable");
    EXPECT_EQ(publisher.uncommitted(), 4U);
    for (int again = 0; again < 2; ++again) {
        const auto flushed = publisher.flush();
        EXPECT_EQ(outcome_of(flushed), "unavailable");
        EXPECT_NE(text_of(flushed).find("step 4 is not committed: "), std::string::npos);
    }
    store_->refuse(false);
    value_of(publisher.submit(state(1), 5));
    value_of(publisher.flush());
    EXPECT_FALSE(publisher.uncommitted());
    EXPECT_EQ(joined(), steps_.digest(1));
}

TEST_F(AsyncFailures, AStepThatWasNotEvenHandedOverIsNamed) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    publisher.miss(1, Error{ErrorKind::kUnsupported, "a tensor of letters"});
    const auto flushed = publisher.flush();
    EXPECT_EQ(outcome_of(flushed), "unsupported");
    EXPECT_EQ(text_of(flushed), "step 1 is not committed: a tensor of letters");
    value_of(publisher.submit(state(1), 2));
    value_of(publisher.flush());
}

TEST_F(AsyncFailures, SubmittingWaitsForNoStoreWhileTheBaselineIsFetched) {
    StumblingReplica baseline;
    AsyncPublisher publisher = start_on(baseline);
    value_of(publisher.submit(state(0), 0));
    baseline.fail_next_ = true;
    store_->hold_reads(true);
    value_of(publisher.submit(state(1), 1));
    value_of(publisher.flush());
    store_->await_arrival();  // the uploading thread asks a store that does not answer
    EXPECT_EQ(outcome_of(publisher.submit(state(2), 2)), "unavailable");
    store_->hold_reads(false);
    EXPECT_NE(text_of(publisher.flush()).find("step 2 is not committed"), std::string::npos);
    while (!publisher.submit(state(3), 3)) {
    }
    value_of(publisher.flush_within(kLong));
    EXPECT_EQ(committed_, (Steps{0, 1, 3}));
    EXPECT_EQ(joined(), steps_.digest(3));
}

TEST_F(AsyncFailures, WhatWaitsOutlivesABaselineThatCouldNotFollow) {
    StumblingReplica baseline;
    AsyncPublisher publisher = start_on(baseline);
    value_of(publisher.submit(state(0), 0));
    store_->close();
    value_of(publisher.submit(state(1), 1));
    store_->await_arrival();
    value_of(publisher.submit(state(2), 2));
    baseline.fail_next_ = true;
    store_->open();
    value_of(publisher.flush_within(kLong));
    EXPECT_EQ(committed_, (Steps{0, 1, 2}));
    EXPECT_EQ(joined(), steps_.digest(2));
}

TEST_F(AsyncFailures, AnAnchorThatFailsIsReportedAndStaysDue) {
    PublishOptions options;
    options.anchor_every = 1;
    AsyncPublisher publisher = start(options);
    value_of(publisher.submit(state(0), 0));
    store_->refuse_anchors(true);
    value_of(publisher.submit(state(1), 1));
    value_of(publisher.flush());
    ASSERT_TRUE(reports_.back().anchor_failure);
    EXPECT_EQ(reports_.back().anchor_failure->text, "no room for anchors");
    EXPECT_FALSE(reports_.back().anchored);
    store_->refuse_anchors(false);
    value_of(publisher.submit(state(2), 2));
    value_of(publisher.flush());
    EXPECT_TRUE(reports_.back().anchored);
    EXPECT_FALSE(reports_.back().anchor_failure);
}

TEST_F(AsyncFailures, ExceptionsDoNotEndTheProcess) {
    StumblingReplica baseline;
    AsyncPublisher publisher = start_on(baseline);
    value_of(publisher.submit(state(0), 0));
    store_->throw_next();
    value_of(publisher.submit(state(1), 1));
    await_failures(1);
    value_of(publisher.flush_within(kLong));
    baseline.throw_next_ = true;
    value_of(publisher.submit(state(2), 2));
    value_of(publisher.flush_within(kLong));
    while (!publisher.submit(state(3), 3)) {
    }
    value_of(publisher.flush_within(kLong));
    EXPECT_EQ(joined(), steps_.digest(3));
}

TEST_F(AsyncFailures, AnIdleTrainerSaysThatItLives) {
    PublishOptions options;
    options.expires_after = Milliseconds(30);
    AsyncPublisher publisher = start(options);
    value_of(publisher.submit(state(0), 0));
    await_heartbeats(2);
    value_of(publisher.submit(state(1), 1));
    value_of(publisher.flush());
    EXPECT_EQ(joined(), steps_.digest(1));
}

TEST_F(AsyncFailures, AnUploadThatHangsDoesNotHoldUpTheEnd) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->close();
    value_of(publisher.submit(state(1), 1));
    store_->await_arrival();
    EXPECT_EQ(text_of(publisher.flush_within(Milliseconds(10))),
              "step 1 is not committed: the store has not answered in time");
    EXPECT_FALSE(publisher.stop_within(Milliseconds(10)));
    store_->open();
    EXPECT_TRUE(publisher.stop_within(kLong));
}

TEST_F(AsyncFailures, WhatTheListenerFailsWithIsHeard) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    {
        const std::lock_guard lock(mutex_);
        answer_ = fail(ErrorKind::kNoSpace, "the listener's disk is full");
    }
    value_of(publisher.submit(state(1), 1));
    const auto flushed = publisher.flush();
    EXPECT_EQ(outcome_of(flushed), "no_space");
    EXPECT_EQ(text_of(flushed), "the listener's disk is full");
    value_of(publisher.flush());
    EXPECT_EQ(committed_, (std::vector<std::uint64_t>{0, 1})) << "nothing was lost by it";
}

}  // namespace
}  // namespace wisp::testing
