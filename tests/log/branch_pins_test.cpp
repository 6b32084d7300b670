// Pins are read slot by slot, and held against a listing.
#include "log/branch_pins.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "doubles/memory_store.hpp"
#include "expect_result.hpp"
#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

/// Somebody else does something just before a listing is answered.
class BusyStore : public MemoryStore {
  public:
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        if (const auto act = std::exchange(before_list, nullptr)) act();
        return MemoryStore::list(prefix, after, limit);
    }
    std::function<void()> before_list;
};

TEST(BranchPins, OneThatIsMadeWhileTheyAreReadIsNoGap) {
    auto store = std::make_shared<BusyStore>();
    const Location run{store, "runs/a", "memory:a"};
    store->before_list = [&] {
        value_of(write_branch_pin(run, {hex_of('1', 32), "../b", {"anchors/a"}}));
    };
    const auto pins = value_of(read_branch_pins(run));
    ASSERT_EQ(pins.size(), 1U);
    EXPECT_EQ(pins[0].pin.at, "../b");
}

TEST(BranchPins, OneThatIsMissingBelowAnotherIsAGap) {
    auto store = std::make_shared<MemoryStore>();
    const Location run{store, "runs/a", "memory:a"};
    value_of(write_branch_pin(run, {hex_of('1', 32), "../b", {"anchors/a"}}));
    value_of(write_branch_pin(run, {hex_of('2', 32), "../c", {"anchors/a"}}));
    const auto listed = value_of(store->list("runs/a/branches/", "", 10));
    ASSERT_EQ(listed.size(), 2U);
    value_of(store->remove(listed[0].key));
    EXPECT_EQ(outcome_of(read_branch_pins(run)), "gap");
}

}  // namespace
}  // namespace wisp::testing
