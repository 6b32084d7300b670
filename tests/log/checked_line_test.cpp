#include "log/checked_line.hpp"
#include "log/tombstone.hpp"

#include <gtest/gtest.h>

#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

TEST(CheckedLine, HoldsForWhatWasWritten) {
    EXPECT_TRUE(check_holds(with_check("{\"a\":1}\n")));
    EXPECT_TRUE(check_holds(write_commit(step_commit())));
    EXPECT_TRUE(check_holds(write_tombstone({hex_of('1', 32), 7, 9})));
}

TEST(CheckedLine, NoticesEveryBitAndEveryCut) {
    const std::string line = write_commit(step_commit());
    for (std::size_t i = 0; i < line.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
            std::string flipped = line;
            flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
            EXPECT_FALSE(check_holds(flipped)) << "byte " << i << ", bit " << bit;
        }
        EXPECT_FALSE(check_holds(std::string_view(line).substr(0, i))) << i;
    }
}

TEST(CheckedLine, IsDemanded) {
    EXPECT_FALSE(check_holds(""));
    EXPECT_FALSE(check_holds("{\"a\":1}\n"));
    EXPECT_FALSE(check_holds("{\"a\":1,\"check\":\"0000000000000000\"}\n"));
    EXPECT_FALSE(check_holds(with_check("{\"a\":1}\n") + "\n"));
}

}  // namespace
}  // namespace wisp::testing
