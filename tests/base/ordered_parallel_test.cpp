#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/parallel_by_size.hpp"
#include "expect_result.hpp"

namespace wisp::testing {
namespace {

using namespace std::chrono_literals;

class OrderedParallel : public ::testing::TestWithParam<unsigned> {
  protected:
    unsigned threads() const { return GetParam(); }
};

void dawdle(std::uint64_t i) {
    if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50 + i % 5 * 100));
}

TEST_P(OrderedParallel, ConsumesEverythingInOrder) {
    for (const std::uint64_t count : {0U, 1U, 2U, 5U, 500U}) {
        std::uint64_t next = 0;  // plain: consumers take turns
        value_of(ordered_parallel<std::uint64_t>(
            count, threads(),
            [](std::uint64_t i, unsigned) -> Result<std::uint64_t> {
                dawdle(i);
                return i * i;
            },
            [&](std::uint64_t i, std::uint64_t value) -> Result<void> {
                EXPECT_EQ(i, next++);
                EXPECT_EQ(value, i * i);
                return {};
            }));
        EXPECT_EQ(next, count);
    }
}

TEST_P(OrderedParallel, RunsAheadOnlyAFewPiecesPerWorker) {
    std::atomic<std::uint64_t> consumed = 0;
    std::atomic<std::uint64_t> farthest = 0;
    value_of(ordered_parallel<int>(
        300, threads(),
        [&](std::uint64_t i, unsigned) -> Result<int> {
            const std::uint64_t ahead = i - std::min(i, consumed.load());
            if (ahead > farthest) farthest = ahead;
            if (i == 10) std::this_thread::sleep_for(20ms);
            return 0;
        },
        [&](std::uint64_t, int) -> Result<void> {
            ++consumed;
            return {};
        }));
    EXPECT_LE(farthest.load(), 4U * threads());
}

TEST_P(OrderedParallel, TurnsExceptionsIntoErrors) {
    const auto outcome = [&](const std::function<void(std::uint64_t)>& produced,
                             const std::function<void(std::uint64_t)>& consumed) {
        return ordered_parallel<int>(
            40, threads(),
            [&](std::uint64_t i, unsigned) -> Result<int> {
                produced(i);
                return 0;
            },
            [&](std::uint64_t i, int) -> Result<void> {
                consumed(i);
                return {};
            });
    };
    const auto nothing = [](std::uint64_t) {};
    const auto no_memory = [](std::uint64_t i) {
        if (i >= 20) throw std::bad_alloc();
    };
    const auto wrong = [](std::uint64_t i) {
        if (i >= 20) throw std::out_of_range("no such block");
    };
    EXPECT_EQ(outcome_of(outcome(no_memory, nothing)), "unavailable");
    EXPECT_EQ(text_of(outcome(nothing, no_memory)), "out of memory");
    EXPECT_EQ(outcome_of(outcome(wrong, nothing)), "internal");
    EXPECT_NE(text_of(outcome(nothing, wrong)).find("no such block"), std::string::npos);
}

TEST_P(OrderedParallel, GivesEachWorkerItsOwnNumber) {
    std::vector<std::atomic<int>> busy(threads());
    value_of(ordered_parallel<int>(
        200, threads(),
        [&](std::uint64_t i, unsigned worker) -> Result<int> {
            EXPECT_LT(worker, threads());
            EXPECT_EQ(busy[worker]++, 0) << "two threads share worker " << worker;
            dawdle(i);
            --busy[worker];
            return 0;
        },
        [](std::uint64_t, int) -> Result<void> { return {}; }));
}

TEST_P(OrderedParallel, ReturnsTheFirstErrorInOrder) {
    std::uint64_t consumed = 0;
    const auto result = ordered_parallel<int>(
        200, threads(),
        [](std::uint64_t i, unsigned) -> Result<int> {
            if (i == 20) std::this_thread::sleep_for(5ms);
            if (i == 20 || i == 21 || i == 22) {
                return fail(ErrorKind::kCorrupt, std::to_string(i));
            }
            return 0;
        },
        [&](std::uint64_t, int) -> Result<void> {
            ++consumed;
            return {};
        });
    EXPECT_EQ(text_of(result), "20");
    EXPECT_EQ(consumed, 20U);
}

TEST_P(OrderedParallel, EndsWhenTheConsumerFails) {
    std::uint64_t last = 0;
    const auto result = ordered_parallel<int>(
        100'000, threads(), [](std::uint64_t, unsigned) -> Result<int> { return 0; },
        [&](std::uint64_t i, int) -> Result<void> {
            last = i;
            if (i == 33) return fail(ErrorKind::kNoSpace, "full");
            return {};
        });
    EXPECT_EQ(outcome_of(result), "no_space");
    EXPECT_EQ(last, 33U);
}

TEST_P(OrderedParallel, HandsOutSmallPiecesTogetherAndInOrder) {
    std::uint64_t next = 0;
    value_of(ordered_parallel_by_size<std::uint64_t>(
        5000, threads(), [](std::uint64_t i) { return i % 7 == 0 ? 300'000U : i % 900; },
        [](std::uint64_t i, unsigned) -> Result<std::uint64_t> { return i * i; },
        [&](std::uint64_t i, std::uint64_t value) -> Result<void> {
            EXPECT_EQ(i, next++);
            EXPECT_EQ(value, i * i);
            return {};
        }));
    EXPECT_EQ(next, 5000U);
    const auto failed = ordered_parallel_by_size<int>(
        5000, threads(), [](std::uint64_t) { return 1U; },
        [](std::uint64_t i, unsigned) -> Result<int> {
            if (i >= 70) return fail(ErrorKind::kCorrupt, std::to_string(i));
            return 0;
        },
        [](std::uint64_t, int) -> Result<void> { return {}; });
    EXPECT_EQ(text_of(failed), "70");
}

INSTANTIATE_TEST_SUITE_P(Threads, OrderedParallel, ::testing::Values(1U, 2U, 3U, 8U));

TEST(ThreadCount, IsAtLeastOneAndHeldToALimit) {
    EXPECT_GE(thread_count(0), 1U);
    EXPECT_EQ(thread_count(3), 3U);
    EXPECT_EQ(thread_count(1'000'000), limits::kMaxThreads);
}

}  // namespace
}  // namespace wisp::testing
