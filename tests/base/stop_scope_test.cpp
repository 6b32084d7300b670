#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/parallel.hpp"
#include "expect_result.hpp"
#include "wisp/control.hpp"

namespace wisp::testing {
namespace {

std::string outcome_of_work(unsigned threads) {
    return outcome_of(ordered_parallel<int>(
        8, threads, [](std::uint64_t, unsigned) -> Result<int> { return 1; },
        [](std::uint64_t, int) -> Result<void> { return {}; }));
}

TEST(StopScope, EndsTheWorkOfItsOwnThreadAndNoOther) {
    std::stop_source source;
    source.request_stop();
    const StopScope scope(source.get_token());
    EXPECT_TRUE(stopped());
    EXPECT_EQ(outcome_of_work(1), "unavailable");
    std::jthread([] {
        EXPECT_FALSE(stopped());
        EXPECT_EQ(outcome_of_work(2), "ok");
    }).join();
}

TEST(StopScope, IsOverWhenItEnds) {
    std::stop_source source;
    source.request_stop();
    {
        const StopScope scope(source.get_token());
    }
    EXPECT_FALSE(stopped());
    EXPECT_EQ(StopScope::innermost(), nullptr);
}

TEST(StopScope, HeedsThoseAroundIt) {
    std::stop_source outer;
    std::stop_source inner;
    const StopScope around(outer.get_token());
    const StopScope scope(inner.get_token());
    const StopScope idle{std::stop_token()};
    EXPECT_FALSE(stopped());
    outer.request_stop();
    EXPECT_TRUE(stopped());
}

TEST(StopScope, GoesOnOnThreadsThatWorkForIt) {
    std::stop_source source;
    const StopScope scope(source.get_token());
    std::atomic<int> asked = 0;
    const auto ended = ordered_parallel<int>(
        1000, 3,
        [&](std::uint64_t, unsigned) -> Result<int> {
            if (++asked == 10) source.request_stop();
            return 1;
        },
        [](std::uint64_t, int) -> Result<void> { return {}; });
    EXPECT_EQ(outcome_of(ended), "unavailable");
    EXPECT_LT(asked, 100);
}

TEST(StopScope, OfAFarewellHeedsNothingButTheTime) {
    std::stop_source source;
    source.request_stop();
    const StopScope scope(source.get_token());
    {
        const StopScope farewell(Milliseconds(60'000));
        EXPECT_FALSE(stopped());
    }
    const StopScope over(Milliseconds(0));
    EXPECT_TRUE(stopped());
}

TEST(StopScope, EndsASleep) {
    std::stop_source source;
    const StopScope scope(source.get_token());
    const std::jthread waker([&] { source.request_stop(); });
    const auto start = std::chrono::steady_clock::now();
    system_clock()->sleep_for(Milliseconds(600'000));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace wisp::testing
