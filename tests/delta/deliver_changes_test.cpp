// Changes are handed over once each, whether they could be kept in memory or not.
#include "delta/deliver_changes.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/page_memory.hpp"
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
    value_of(deliver_changes(base, value_of(digest_of(base)), {delta}, 2,
                             {[&](const MovedBlock& block) -> Result<void> {
                                 all.push_back({block.tensor, block.first_element, block.changes});
                                 return {};
                             }},
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

/// A tensor in memory of which only some pages can be read: touching another one is fatal.
class GuardedTensor : public Weights {
  public:
    explicit GuardedTensor(std::span<const std::byte> bytes)
        : schema_(value_of(Schema::make({{"w", Dtype::kU8, {bytes.size()}}}))),
          memory_(value_of(PageMemory::allocate(bytes.size()))) {
        std::ranges::copy(bytes, memory_.bytes().begin());
        ::mprotect(memory_.bytes().data(), bytes.size(), PROT_NONE);
    }
    void open_page(std::size_t page) {
        ::mprotect(memory_.bytes().data() + page * kPage, kPage, PROT_READ);
    }
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t) const override { return memory_.bytes(); }
    static constexpr std::size_t kPage = 4096;

  private:
    Schema schema_;
    PageMemory memory_;
};

TEST(DeliverChanges, ReadsOfASwiftDeltasBaseWhatItTouches) {
    constexpr std::size_t kPages = 700;  // more than one block
    const Tensor before{{"w", Dtype::kU8, {kPages * GuardedTensor::kPage}},
                        Bytes(kPages * GuardedTensor::kPage, std::byte{3})};
    Tensor then = before;
    Tensor last = before;
    GuardedTensor weights(before.bytes);
    for (const std::size_t page : {0U, 7U, 300U, 699U}) {
        then.bytes[page * GuardedTensor::kPage + 17] = std::byte{4};
        last.bytes[page * GuardedTensor::kPage + 18] = std::byte{5};
        weights.open_page(page);
    }
    const TempFolder folder;
    write_bytes(folder / "0", safetensors_file({before}));
    write_bytes(folder / "1", safetensors_file({then}));
    write_bytes(folder / "2", safetensors_file({last}));
    const auto open = [&](const char* name) { return value_of(Checkpoint::open(folder / name)); };
    DiffOptions swift;
    swift.codec = Codec::kSwift;
    value_of(diff(open("0"), open("1"), folder / "delta1", swift));
    value_of(diff(open("1"), open("2"), folder / "delta2", swift));
    std::uint64_t changed = 0;
    value_of(deliver_changes(weights, value_of(digest_of(open("0"))),
                             {folder / "delta1", folder / "delta2"}, 2,
                             {[&](const MovedBlock& block) -> Result<void> {
                                 changed += block.changes.count();
                                 return {};
                             }}));
    EXPECT_EQ(changed, 4U);  // what the first one changed, the second put back
}

TEST(DeliverChanges, HandsNothingOverFromAnotherBase) {
    const CheckpointSteps steps(3);
    const TempFolder folder;
    const auto delta = folder / "delta.safetensors";
    const Checkpoint other = value_of(Checkpoint::open(steps.state(2)));
    value_of(diff(value_of(Checkpoint::open(steps.state(0))),
                  value_of(Checkpoint::open(steps.state(1))), delta));
    const auto refused = deliver_changes(other, value_of(digest_of(other)), {delta}, 2,
                                         {[](const MovedBlock&) -> Result<void> { std::abort(); }});
    EXPECT_EQ(outcome_of(refused), "wrong_base");
}

}  // namespace
}  // namespace wisp::testing
