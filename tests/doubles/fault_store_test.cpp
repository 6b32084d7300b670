#include "doubles/fault_store.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <thread>

#include "base/bytes.hpp"
#include "doubles/memory_store.hpp"
#include "expect_result.hpp"
#include "manual_clock.hpp"

namespace wisp::testing {
namespace {

struct Bench {
    explicit Bench(const FaultPlan& plan, std::uint64_t seed = 1)
        : store(std::make_shared<FaultStore>(memory, plan, seed, clock)) {}
    std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
    std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>(clock);
    std::shared_ptr<FaultStore> store;
};

std::string text_of_object(Store& store, const std::string& key) {
    const auto bytes = read_whole(store, key, 1'000);
    if (!bytes) return outcome_of(bytes);
    return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

TEST(FaultStore, FailsBeforeAnythingHappens) {
    FaultPlan plan;
    plan.fail_before = 1;
    Bench bench(plan);
    EXPECT_EQ(outcome_of(bench.store->put("a", {})), "unavailable");
    EXPECT_EQ(outcome_of(bench.memory->head("a")), "not_found");
    bench.store->heal();
    value_of(bench.store->put("a", {}));
}

TEST(FaultStore, LosesTheReplyOfWhatHappened) {
    FaultPlan plan;
    plan.reply_lost = 1;
    Bench bench(plan);
    EXPECT_EQ(outcome_of(bench.store->create("a", as_bytes("x"))), "unavailable");
    EXPECT_EQ(text_of_object(*bench.memory, "a"), "x");
    EXPECT_EQ(outcome_of(bench.store->remove("a")), "unavailable");
    EXPECT_EQ(text_of_object(*bench.memory, "a"), "not_found");
}

TEST(FaultStore, ThrottlesWithATimeToWait) {
    FaultPlan plan;
    plan.throttle = 1;
    plan.retry_after_ms = 77;
    Bench bench(plan);
    const auto answer = bench.store->put("a", {});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, ErrorKind::kUnavailable);
    EXPECT_EQ(answer.error().retry_after_ms, 77U);
}

TEST(FaultStore, TakesItsTime) {
    FaultPlan plan;
    plan.slow = 1;
    Bench bench(plan);
    value_of(bench.store->put("a", {}));
    EXPECT_EQ(bench.clock->slept_ms(), 2'000);
}

TEST(FaultStore, DamagesWhatIsRead) {
    const std::string body(100, 'x');
    const auto read_with = [&](double FaultPlan::* fault) {
        FaultPlan plan;
        plan.*fault = 1;
        Bench bench(plan);
        value_of(bench.memory->put("a", as_bytes(body)));
        std::string into(200, '#');
        const auto count =
            value_of(bench.store->read("a", 0, std::as_writable_bytes(std::span<char>(into))));
        EXPECT_GT(bench.store->faults(), 0U);
        return into.substr(0, count);
    };
    EXPECT_LT(read_with(&FaultPlan::truncated_read).size(), 100U);
    EXPECT_EQ(read_with(&FaultPlan::oversized_read).size(), 200U);
    const std::string flipped = read_with(&FaultPlan::flipped_bit);
    EXPECT_EQ(flipped.size(), 100U);
    EXPECT_EQ(std::ranges::count(flipped, 'x'), 99);
}

TEST(FaultStore, AnswersFromThePastForABoundedTime) {
    FaultPlan plan;
    plan.stale_read = 1;
    plan.stale_operations = 1;
    Bench bench(plan);
    value_of(bench.store->put("a", as_bytes("old")));
    EXPECT_EQ(text_of_object(*bench.store, "a"), "not_found");
    EXPECT_EQ(text_of_object(*bench.store, "a"), "old");
    value_of(bench.store->put("a", as_bytes("new")));
    EXPECT_EQ(text_of_object(*bench.store, "a"), "old");
    EXPECT_EQ(text_of_object(*bench.store, "a"), "new");
    value_of(bench.store->remove("a"));
    EXPECT_EQ(value_of(bench.store->head("a")).size_bytes, 3U);
    EXPECT_EQ(outcome_of(bench.store->head("a")), "not_found");
}

TEST(FaultStore, ListsWhatWas) {
    FaultPlan plan;
    plan.stale_list = 1;
    plan.stale_operations = 1;
    Bench bench(plan);
    const auto listed = [&](std::size_t limit) {
        std::string keys;
        for (const auto& object : value_of(bench.store->list("", "", limit))) keys += object.key;
        return keys;
    };
    value_of(bench.store->put("b", {}));
    value_of(bench.store->put("c", {}));
    value_of(bench.store->put("a", {}));
    EXPECT_EQ(listed(2), "bc");
    EXPECT_EQ(listed(2), "ab");
    value_of(bench.store->remove("a"));
    EXPECT_EQ(listed(9), "abc");
    EXPECT_EQ(listed(9), "bc");
}

TEST(FaultStore, KnowsTheWritesOfStoresItSharesItsHistoryWith) {
    FaultPlan plan;
    const auto clock = std::make_shared<ManualClock>();
    const auto memory = std::make_shared<MemoryStore>(clock);
    const auto history = std::make_shared<ObjectHistory>(10);
    FaultStore writer(memory, plan, std::make_shared<SeededFaults>(plan, 1), history, clock);
    plan.stale_read = 1;
    plan.stale_operations = 1;
    FaultStore reader(memory, plan, std::make_shared<SeededFaults>(plan, 1), history, clock);
    value_of(writer.put("a", as_bytes("x")));
    EXPECT_EQ(outcome_of(reader.head("a")), "not_found");
}

TEST(FaultStore, IgnoresTheConditionOfCreate) {
    FaultPlan plan;
    plan.creation = Creation::kOverwrite;
    Bench bench(plan);
    EXPECT_FALSE(bench.store->creates_exclusively());
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("1"))), Created::kNew);
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("2"))), Created::kNew);
    EXPECT_EQ(text_of_object(*bench.memory, "a"), "2");
}

TEST(FaultStore, RacesEvenInOneThread) {
    FaultPlan plan;
    plan.creation = Creation::kRacy;
    plan.race_operations = 2;
    Bench bench(plan);
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("1"))), Created::kNew);
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("2"))), Created::kNew);
    value_of(bench.store->now_ms());
    value_of(bench.store->now_ms());
    EXPECT_EQ(value_of(bench.store->create("a", as_bytes("3"))), Created::kAlreadyThere);
}

TEST(FaultStore, RepeatsItselfFromOneSeed) {
    const auto story = [](std::uint64_t seed) {
        FaultPlan plan;
        plan.fail_before = plan.reply_lost = plan.stale_read = plan.flipped_bit = 0.2;
        plan.truncated_read = plan.oversized_read = plan.stale_list = plan.throttle = 0.2;
        Bench bench(plan, seed);
        std::string told;
        for (int i = 0; i < 200; ++i) {
            const std::string key = fmt::format("k{}", i % 7);
            told += outcome_of(bench.store->put(key, as_bytes(std::to_string(i))));
            told += text_of_object(*bench.store, key);
            told += outcome_of(bench.store->create(fmt::format("c{}", i / 3), {}));
            if (const auto listed = bench.store->list("", "", 5)) {
                for (const auto& object : *listed) told += object.key;
            }
        }
        return told;
    };
    EXPECT_EQ(story(1), story(1));
    EXPECT_NE(story(1), story(2));
}

}  // namespace
}  // namespace wisp::testing
