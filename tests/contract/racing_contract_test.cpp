#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "contract/store_contract.hpp"

namespace wisp::testing {
namespace {

class RacingContract : public StoreContract {};

TEST_P(RacingContract, LetsOneOfManyCreatorsWin) {
    if (!store().creates_exclusively()) GTEST_SKIP() << "this store does not promise it";
    constexpr int kRounds = 60;
    constexpr int kThreads = 4;
    std::vector<std::atomic<int>> winners(kRounds);
    std::vector<std::atomic<int>> winner_of(kRounds);
    std::atomic<int> failures = 0;
    std::barrier start(kThreads);
    const auto race = [&](int me) {
        for (int round = 0; round < kRounds; ++round) {
            const std::string body = fmt::format("{:d}", me) + std::string(20'000, 'x');
            start.arrive_and_wait();
            const auto created = store().create(key(fmt::format("slot/{}", round)), as_bytes(body));
            if (!created) ++failures;
            if (created && *created == Created::kNew) {
                ++winners[static_cast<std::size_t>(round)];
                winner_of[static_cast<std::size_t>(round)] = me;
            }
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int me = 0; me < kThreads; ++me) threads.emplace_back(race, me);
    }
    EXPECT_EQ(failures, 0);
    for (int round = 0; round < kRounds; ++round) {
        const auto at = static_cast<std::size_t>(round);
        ASSERT_EQ(winners[at], 1) << "round " << round;
        ASSERT_EQ(text(fmt::format("slot/{}", round))[0], '0' + winner_of[at]);
    }
}

TEST_P(RacingContract, ShowsReadersAllOfAnObjectOrNone) {
    constexpr int kWrites = 60;
    const std::string first(300'000, 'A');
    const std::string second(200'001, 'B');
    put("object", first);
    std::atomic<bool> done = false;
    std::atomic<int> torn = 0;
    std::atomic<int> failures = 0;
    std::vector<std::jthread> readers;
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([&] {
            std::string into(400'000, '#');
            do {
                const auto count =
                    store().read(key("object"), 0, std::as_writable_bytes(std::span<char>(into)));
                if (!count) {
                    ++failures;
                    continue;
                }
                const auto seen = std::string_view(into).substr(0, *count);
                if (seen != first && seen != second) ++torn;
            } while (!done);
        });
    }
    for (int i = 0; i < kWrites; ++i) put("object", i % 2 == 0 ? second : first);
    done = true;
    readers.clear();
    EXPECT_EQ(torn, 0);
    EXPECT_EQ(failures, 0);
}

TEST_P(RacingContract, ShowsWholeObjectsWhileTheyAreCreatedAndRemoved) {
    constexpr int kRounds = 40;
    const std::string body(100'000, 'A');
    std::atomic<bool> done = false;
    std::atomic<int> torn = 0;
    std::jthread reader([&] {
        std::string into(200'000, '#');
        do {
            const auto count =
                store().read(key("object"), 0, std::as_writable_bytes(std::span<char>(into)));
            const bool whole = count && std::string_view(into).substr(0, *count) == body;
            if (!whole && outcome_of(count) != "not_found") ++torn;
        } while (!done);
    });
    for (int i = 0; i < kRounds; ++i) {
        EXPECT_EQ(value_of(store().create(key("object"), as_bytes(body))), Created::kNew);
        value_of(store().remove(key("object")));
    }
    done = true;
    reader.join();
    EXPECT_EQ(torn, 0);
}

TEST_P(RacingContract, MakesFoldersForManyAtOnce) {
    constexpr int kThreads = 4;
    std::atomic<int> failures = 0;
    std::barrier start(kThreads);
    {
        std::vector<std::jthread> threads;
        for (int me = 0; me < kThreads; ++me) {
            threads.emplace_back([&, me] {
                for (int round = 0; round < 10; ++round) {
                    start.arrive_and_wait();
                    const std::string name = fmt::format("r{}/deep/er/{}", round, me);
                    if (!store().put(key(name), as_bytes("x"))) ++failures;
                }
            });
        }
    }
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(names("r").size(), 40U);
}

INSTANTIATE_TEST_SUITE_P(Store, RacingContract, ::testing::ValuesIn(store_factories()),
                         name_of_factory);

}  // namespace
}  // namespace wisp::testing
