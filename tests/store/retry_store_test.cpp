#include "store/retry_store.hpp"

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "expect_result.hpp"
#include "manual_clock.hpp"

namespace wisp::testing {
namespace {

/// Troubles in the order given, then none; asked about every call that reaches the store.
class ScriptedFaults : public FaultPolicy {
  public:
    explicit ScriptedFaults(std::vector<Trouble> script) : script_(std::move(script)) {}
    Trouble decide(StoreOperation, const std::string&) override {
        return asked_ < script_.size() ? script_[asked_++] : (++asked_, Trouble{});
    }
    std::size_t asked() const { return asked_; }

  private:
    std::vector<Trouble> script_;
    std::size_t asked_ = 0;
};

const Trouble kFails = [] {
    Trouble trouble;
    trouble.fail_before = true;
    return trouble;
}();
const Trouble kLosesReply = [] {
    Trouble trouble;
    trouble.reply_lost = true;
    return trouble;
}();
const Trouble kThrottles = [] {
    Trouble trouble;
    trouble.throttle = true;
    return trouble;
}();

struct RetryBench {
    explicit RetryBench(std::vector<Trouble> script, RetryPlan retries = {},
                        std::uint32_t retry_after_ms = 1'000)
        : faults(std::make_shared<ScriptedFaults>(std::move(script))) {
        FaultPlan plan;
        plan.retry_after_ms = retry_after_ms;
        store = std::make_shared<RetryStore>(
            std::make_shared<FaultStore>(memory, plan, faults, std::make_shared<ObjectHistory>(0),
                                         clock),
            retries, clock, 1);
    }
    std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
    std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>(clock);
    std::shared_ptr<ScriptedFaults> faults;
    std::shared_ptr<RetryStore> store;
};

TEST(RetryStore, GetsOverAFewFailures) {
    RetryBench bench({kFails, kLosesReply, kFails});
    value_of(bench.store->put("a", as_bytes("x")));
    EXPECT_EQ(bench.faults->asked(), 4U);
    EXPECT_GE(bench.clock->slept_ms(), 150);
}

TEST(RetryStore, GivesUpAfterItsTries) {
    RetryPlan plan;
    plan.tries = 3;
    RetryBench bench(std::vector<Trouble>(10, kFails), plan);
    EXPECT_EQ(outcome_of(bench.store->head("a")), "unavailable");
    EXPECT_EQ(bench.faults->asked(), 3U);
}

TEST(RetryStore, GivesUpWhenItsTimeIsUp) {
    RetryPlan plan;
    plan.tries = 1'000'000;
    RetryBench bench(std::vector<Trouble>(100'000, kFails), plan);
    EXPECT_EQ(outcome_of(bench.store->head("a")), "unavailable");
    EXPECT_LE(bench.clock->slept_ms(), 60'000);
    EXPECT_GT(bench.clock->slept_ms(), 30'000);
}

TEST(RetryStore, AsksOnceWhenTheAnswerIsFinal) {
    RetryBench bench({});
    EXPECT_EQ(outcome_of(bench.store->head("a")), "not_found");
    EXPECT_EQ(bench.faults->asked(), 1U);
    EXPECT_EQ(bench.clock->slept_ms(), 0);
}

TEST(RetryStore, WaitsAsLongAsTheServerAsks) {
    RetryBench bench({kThrottles}, {}, 20'000);
    value_of(bench.store->put("a", {}));
    EXPECT_EQ(bench.clock->slept_ms(), 20'000);
}

TEST(RetryStore, DoesNotWaitForAServerThatAsksTooMuch) {
    RetryBench bench({kThrottles}, {}, 600'000);
    EXPECT_EQ(outcome_of(bench.store->put("a", {})), "unavailable");
    EXPECT_EQ(bench.clock->slept_ms(), 0);
}

TEST(RetryStore, KnowsItsOwnObjectWhenTheReplyWasLost) {
    RetryBench bench({kLosesReply});
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("mine"))), Created::kNew);
    EXPECT_EQ(bench.faults->asked(), 3U) << "create, create, read";
}

TEST(RetryStore, KnowsItsOwnEmptyObjectToo) {
    RetryBench bench({kLosesReply});
    EXPECT_EQ(value_of(bench.store->create("a", {})), Created::kNew);
}

TEST(RetryStore, YieldsToAnotherWriterAfterADoubtfulTry) {
    for (const char* theirs : {"them", "mine and more", "min", ""}) {
        RetryBench bench({kFails});
        value_of(bench.memory->put("a", as_bytes(theirs)));
        EXPECT_EQ(value_of(bench.store->create("a", as_bytes("mine"))), Created::kAlreadyThere);
    }
}

TEST(RetryStore, BelievesAlreadyThereWhenNoTryWasDoubtful) {
    RetryBench bench({});
    value_of(bench.memory->put("a", as_bytes("mine")));
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("mine"))), Created::kAlreadyThere);
    EXPECT_EQ(bench.faults->asked(), 1U);
}

TEST(RetryStore, ReadsBackThroughFailures) {
    RetryBench bench({kLosesReply, {}, kFails, kFails});
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("mine"))), Created::kNew);
}

TEST(RetryStore, LeavesItOpenWhenItCannotReadBack) {
    RetryPlan plan;
    plan.tries = 3;
    RetryBench bench({kLosesReply, {}, kFails, kFails, kFails}, plan);
    EXPECT_EQ(outcome_of(bench.store->create("a", as_bytes("mine"))), "unavailable");
}

TEST(RetryStore, PausesDifferentlyForEachSeed) {
    const auto slept = [](std::uint64_t seed) {
        const auto clock = std::make_shared<ManualClock>();
        FaultPlan plan;
        plan.fail_before = 1;
        RetryStore store(
            std::make_shared<FaultStore>(std::make_shared<MemoryStore>(clock), plan, 1), {}, clock,
            seed);
        EXPECT_EQ(outcome_of(store.head("a")), "unavailable");
        return clock->slept_ms();
    };
    EXPECT_EQ(slept(1), slept(1));
    EXPECT_NE(slept(1), slept(2));
}

}  // namespace
}  // namespace wisp::testing
