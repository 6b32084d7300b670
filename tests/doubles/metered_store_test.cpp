#include "doubles/metered_store.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/bytes.hpp"
#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "expect_result.hpp"

namespace wisp::testing {
namespace {

TEST(MeteredStore, CountsRequestsBytesMissesAndErrors) {
    MeteredStore store(std::make_shared<MemoryStore>());
    Bytes into(10);
    value_of(store.put("a", as_bytes("12345")));
    value_of(store.create("b", as_bytes("123")));
    value_of(store.create("b", as_bytes("123")));
    value_of(store.read("a", 2, into));
    EXPECT_EQ(outcome_of(store.read("c", 0, into)), "not_found");
    EXPECT_EQ(outcome_of(store.head("..")), "invalid");
    value_of(store.list("", "", 10));
    value_of(store.remove("a"));
    value_of(store.now_ms());
    const StoreCounts counts = store.counts();
    EXPECT_EQ(counts.requests(), 9U);
    EXPECT_EQ(counts.errors(), 1U);
    EXPECT_EQ(counts.bytes_out(), 11U);
    EXPECT_EQ(counts.bytes_in(), 3U);
    EXPECT_EQ(counts.of(StoreOperation::kCreate).requests, 2U);
    EXPECT_EQ(counts.of(StoreOperation::kRead).misses, 1U);
    EXPECT_EQ(counts.of(StoreOperation::kRead).errors, 0U);
    EXPECT_EQ(counts.of(StoreOperation::kHead).errors, 1U);
    EXPECT_EQ(counts.of(StoreOperation::kList).requests, 1U);
}

TEST(MeteredStore, TakesTheTime) {
    FaultPlan plan;
    plan.slow = 1;
    plan.slow_for = Milliseconds(5);
    MeteredStore store(std::make_shared<FaultStore>(std::make_shared<MemoryStore>(), plan, 1));
    value_of(store.put("a", {}));
    value_of(store.put("a", {}));
    const OperationCounts counts = store.counts().of(StoreOperation::kPut);
    EXPECT_GE(counts.slowest_microseconds, 5'000U);
    EXPECT_GE(counts.microseconds, 10'000U);
}

TEST(MeteredStore, LosesNoCountBetweenThreads) {
    MeteredStore store(std::make_shared<MemoryStore>());
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (int n = 0; n < 500; ++n) value_of(store.put("a", as_bytes("xy")));
            });
        }
    }
    EXPECT_EQ(store.counts().requests(), 2'000U);
    EXPECT_EQ(store.counts().bytes_out(), 4'000U);
}

}  // namespace
}  // namespace wisp::testing
