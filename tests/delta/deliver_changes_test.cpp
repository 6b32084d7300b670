// Changes are handed over once each, whether they could be kept in memory or not.
#include "delta/deliver_changes.hpp"

#include <gtest/gtest.h>

#include "checkpoint_steps.hpp"

namespace wisp::testing {
namespace {

struct Handed {
    std::size_t tensor;
    std::uint64_t first_element;
    BlockChanges changes;
    friend bool operator==(const Handed&, const Handed&) = default;
};

std::vector<Handed> handed(const Checkpoint& base, const std::filesystem::path& delta,
                           std::uint64_t keep_bytes) {
    std::vector<Handed> all;
    value_of(deliver_changes(
        base, value_of(digest_of(base)), {delta}, 2,
        [&](const MovedBlock& block) -> Result<void> {
            all.push_back({block.tensor, block.first_element, block.changes});
            return {};
        },
        std::nullopt, keep_bytes));
    return all;
}

TEST(DeliverChanges, HandsOverTheSameWhetherKeptOrDecodedAgain) {
    const CheckpointSteps steps(2);
    const TempFolder folder;
    const auto delta = folder / "delta.safetensors";
    const Checkpoint old_state = value_of(Checkpoint::open(steps.state(0)));
    const DiffReport diffed =
        value_of(diff(old_state, value_of(Checkpoint::open(steps.state(1))), delta));
    const auto kept = handed(old_state, delta, limits::kChangeBufferBytes);
    EXPECT_EQ(handed(old_state, delta, 0), kept);
    std::uint64_t count = 0;
    for (const Handed& block : kept) count += block.changes.count();
    EXPECT_EQ(count, diffed.changed_elements);
}

TEST(DeliverChanges, HandsNothingOverFromAnotherBase) {
    const CheckpointSteps steps(3);
    const TempFolder folder;
    const auto delta = folder / "delta.safetensors";
    const Checkpoint other = value_of(Checkpoint::open(steps.state(2)));
    value_of(diff(value_of(Checkpoint::open(steps.state(0))),
                  value_of(Checkpoint::open(steps.state(1))), delta));
    const auto refused = deliver_changes(other, value_of(digest_of(other)), {delta}, 2,
                                         [](const MovedBlock&) -> Result<void> { std::abort(); });
    EXPECT_EQ(outcome_of(refused), "wrong_base");
}

}  // namespace
}  // namespace wisp::testing
