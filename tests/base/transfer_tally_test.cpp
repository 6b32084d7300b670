#include "base/transfer_tally.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace wisp::testing {
namespace {

struct Told {
    std::vector<std::uint64_t> done;
    Progress progress() {
        return [this](std::string_view phase, std::uint64_t moved, std::uint64_t total) {
            EXPECT_EQ(phase, "fetch");
            EXPECT_EQ(total, 100U);
            done.push_back(moved);
        };
    }
};

TEST(TransferTally, TellsWhatMovesBeforeThePieceIsComplete) {
    Told told;
    TransferTally tally("fetch", told.progress());
    tally.expect(100);
    {
        TransferScope piece(&tally);
        TransferScope::moved(10);
        TransferScope::moved(20);
        // Code that moves bytes need not report all of them.
        piece.complete(60);
    }
    EXPECT_EQ(told.done, (std::vector<std::uint64_t>{0, 10, 30, 60}));
    TransferScope::moved(5);
    EXPECT_EQ(told.done.size(), 4U) << "outside of a scope nobody counts";
}

TEST(TransferTally, TakesBackWhatDidNotArrive) {
    Told told;
    TransferTally tally("fetch", told.progress());
    tally.expect(100);
    {
        const TransferScope failed(&tally);
        TransferScope::moved(40);
    }
    EXPECT_EQ(told.done.back(), 0U);
    TransferScope again(&tally);
    TransferScope::moved(120);
    EXPECT_EQ(told.done.back(), 100U) << "never more than there is";
    again.complete(100);
}

TEST(TransferTally, CountsWhatOtherThreadsMoveForAPiece) {
    Told told;
    TransferTally tally("fetch", told.progress());
    tally.expect(100);
    TransferScope piece(&tally);
    TransferScope* const counted = TransferScope::innermost();
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([counted] {
            const TransferScope handed_on(counted);
            for (int k = 0; k < 10; ++k) TransferScope::moved(2);
        });
    }
    threads.clear();
    EXPECT_EQ(told.done.back(), 80U);
    piece.complete(100);
    EXPECT_EQ(told.done.back(), 100U);
}

TEST(TransferTally, AListenerMayThrow) {
    TransferTally tally("fetch", [](std::string_view, std::uint64_t done, std::uint64_t) {
        if (done != 0) throw std::runtime_error("enough");
    });
    tally.expect(100);
    try {
        const TransferScope piece(&tally);
        TransferScope::moved(10);
        ADD_FAILURE() << "it threw";
    } catch (const std::runtime_error&) {
        // Of moved(); what had moved was taken back on the way, and told.
    }
    TransferTally always("fetch",
                         [told = 0](std::string_view, std::uint64_t, std::uint64_t) mutable {
                             if (told++ > 1) throw std::runtime_error("enough");
                         });
    always.expect(100);
    const TransferScope given_up(&always);
    TransferScope::moved(10);
}

TEST(TransferTally, NeedsNobodyWhoListens) {
    TransferTally tally("fetch", {});
    tally.expect(100);
    TransferScope piece(&tally);
    TransferScope::moved(10);
    piece.complete(100);
    const TransferScope nobody(static_cast<TransferTally*>(nullptr));
    TransferScope::moved(10);
}

}  // namespace
}  // namespace wisp::testing
