// Deltas that a relay hands to the holder of the weights, who decodes and proves them over its own
// memory, and over what it has staged there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/bytes.hpp"
#include "checkpoint_steps.hpp"
#include "delta/delta_layout.hpp"
#include "doubles/memory_store.hpp"
#include "repaired_seal.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"
#include "wisp/relay.hpp"

namespace wisp::testing {
namespace {

/// A checkpoint in memory, and changes that were not written yet.
class StagingHolder : public StagedWeights {
  public:
    explicit StagingHolder(const Checkpoint& from) : schema_(from.schema()) {
        for (std::size_t i = 0; i < schema_.tensors().size(); ++i) {
            tensors_.emplace_back(from.bytes(i).begin(), from.bytes(i).end());
        }
    }
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return tensors_[tensor]; }
    void staged(std::size_t tensor, std::uint64_t first_element, std::uint64_t,
                BlockChanges& into) const override {
        const auto found = staged_.find({tensor, first_element});
        into = found == staged_.end() ? BlockChanges() : found->second;
        into.old_bits.clear();  // which nobody needs
    }

    /// What the deltas change lies over the weights from here on.
    void stage(const std::vector<MovedBlock>& blocks) {
        for (const MovedBlock& block : blocks) {
            staged_[{block.tensor, block.first_element}] = block.changes;
        }
    }
    void write(const std::vector<MovedBlock>& blocks) {
        for (const MovedBlock& block : blocks)
            put(block.tensor, block.first_element, block.changes);
    }
    void write_staged() {
        for (const auto& [where, changes] : staged_) put(where.first, where.second, changes);
        staged_.clear();
    }
    std::string digest() const {
        StateDigest sum;
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            sum += digest_of_words(schema_.tensors()[i], 0, tensors_[i]);
        }
        return to_text(sum);
    }
    Bytes& tensor(std::size_t i) { return tensors_[i]; }

  private:
    void put(std::size_t tensor, std::uint64_t first_element, const BlockChanges& changes) {
        const std::size_t width = changes.element_bytes;
        for (std::size_t i = 0; i < changes.count(); ++i) {
            std::memcpy(tensors_[tensor].data() + (first_element + changes.positions[i]) * width,
                        changes.new_bits.data() + i * width, width);
        }
    }
    Schema schema_;
    std::vector<Bytes> tensors_;
    std::map<std::pair<std::size_t, std::uint64_t>, BlockChanges> staged_;
};

/// The delta says that it leads to `result`, under a seal that holds.
void reseal(const std::filesystem::path& delta, const StateDigest& result) {
    Bytes file = read_bytes(delta);
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    const std::string said = to_text(result);
    const std::size_t at = text.find(kResultKey) + kResultKey.size() + 3;
    std::memcpy(file.data() + at, said.data(), said.size());
    repair_seal(file);
    write_bytes(delta, file);
}

class HandedDeltas : public ::testing::Test {
  protected:
    StagingHolder holder(std::size_t state) {
        return StagingHolder(value_of(Checkpoint::open(steps_.state(state))));
    }
    std::vector<std::filesystem::path> deltas(std::size_t first, std::size_t last) {
        std::vector<std::filesystem::path> found;
        for (; first < last; ++first)
            found.push_back(steps_.delta(first, first + 1, Codec::kSwift));
        return found;
    }
    Result<std::vector<MovedBlock>> decode(const StagingHolder& over, std::size_t first,
                                           std::size_t last) {
        return decode_staged(over, deltas(first, last), steps_.digest(first), steps_.digest(last),
                             "rank 7");
    }
    std::string wanted(std::size_t i) { return to_text(steps_.digest(i)); }

    CheckpointSteps steps_{8};
};

TEST_F(HandedDeltas, LeadFromOneStateToAnother) {
    StagingHolder held = holder(0);
    held.write(value_of(decode(held, 0, 1)));
    EXPECT_EQ(held.digest(), wanted(1));
    held.write(value_of(decode(held, 1, 6)));
    EXPECT_EQ(held.digest(), wanted(6));
}

TEST_F(HandedDeltas, AreDecodedOverWhatIsStagedAndNotWritten) {
    for (const std::size_t staged : {std::size_t{1}, std::size_t{4}}) {
        for (const std::size_t last : {staged + 1, staged + 3}) {
            StagingHolder held = holder(0);
            held.stage(value_of(decode(held, 0, staged)));
            const std::vector<MovedBlock> next = value_of(decode(held, staged, last));
            EXPECT_EQ(held.digest(), wanted(0)) << "nothing is written";
            held.write_staged();
            EXPECT_EQ(held.digest(), wanted(staged));
            held.write(next);
            EXPECT_EQ(held.digest(), wanted(last)) << staged << " to " << last;
        }
    }
}

TEST_F(HandedDeltas, AreDecodedOverWhatIsStagedWhenEveryElementChanges) {
    CheckpointSteps dense(4, 0.9);
    const auto decode_dense = [&](const StagingHolder& over, std::size_t first, std::size_t last) {
        std::vector<std::filesystem::path> files;
        for (std::size_t i = first; i < last; ++i) {
            files.push_back(dense.delta(i, i + 1, Codec::kSwift));
        }
        return value_of(
            decode_staged(over, files, dense.digest(first), dense.digest(last), "rank 7"));
    };
    StagingHolder held(value_of(Checkpoint::open(dense.state(0))));
    held.stage(decode_dense(held, 0, 1));
    const std::vector<MovedBlock> next = decode_dense(held, 1, 3);
    held.write_staged();
    held.write(next);
    EXPECT_EQ(held.digest(), to_text(dense.digest(3)));
}

TEST_F(HandedDeltas, RefuseMemoryThatSomebodyElseWroteToAndNameIt) {
    StagingHolder held = holder(0);
    for (std::byte& byte : held.tensor(0)) byte ^= std::byte{1};
    const auto refused = decode(held, 0, 2);
    EXPECT_EQ(outcome_of(refused), "wrong_base");
    EXPECT_NE(text_of(refused).find("the old values came from rank 7"), std::string::npos)
        << text_of(refused);
}

TEST_F(HandedDeltas, AreCorruptWhereTheyLeadElsewhereThanTheySayFromMemoryThatIsRight) {
    const auto delta = steps_.delta(0, 1, Codec::kSwift);
    reseal(delta, steps_.digest(2));
    const auto decode_it = [&](const StagingHolder& over) {
        return decode_staged(over, {delta}, steps_.digest(0), steps_.digest(2), "rank 7");
    };
    StagingHolder held = holder(0);
    const auto wrong = decode_it(held);
    EXPECT_EQ(outcome_of(wrong), "corrupt");
    EXPECT_EQ(text_of(wrong).find("rank 7"), std::string::npos) << text_of(wrong);
    for (std::byte& byte : held.tensor(0)) byte ^= std::byte{1};
    EXPECT_EQ(outcome_of(decode_it(held)), "wrong_base");
}

TEST_F(HandedDeltas, RefuseOtherStatesThanTheyLeadBetween) {
    StagingHolder held = holder(0);
    const auto from_elsewhere =
        decode_staged(held, deltas(0, 2), steps_.digest(1), steps_.digest(2), "rank 7");
    EXPECT_EQ(outcome_of(from_elsewhere), "invalid");
    const auto to_elsewhere =
        decode_staged(held, deltas(0, 2), steps_.digest(0), steps_.digest(3), "rank 7");
    EXPECT_EQ(outcome_of(to_elsewhere), "invalid");
    EXPECT_EQ(outcome_of(decode_staged(held, {}, {}, {}, "rank 7")), "invalid");
    const auto compact = decode_staged(held, {steps_.delta(0, 1, Codec::kCompact)},
                                       steps_.digest(0), steps_.digest(1), "rank 7");
    EXPECT_EQ(outcome_of(compact), "unsupported");
}

/// A relay whose holders decode, if they say so.
class HandingRelay : public ::testing::Test {
  protected:
    HandingRelay() {
        RelayReplicaOptions made;
        made.on_adopt = [](const auto&, const auto&, const auto&) -> Result<void> { return {}; };
        made.room = [this](auto) -> Result<std::span<std::byte>> {
            ++asked_;
            return fail(ErrorKind::kUnavailable, "they do not answer");
        };
        made.hand_over = [this](const std::vector<std::filesystem::path>& deltas,
                                const ReplicaRecord& after) -> Result<bool> {
            handed_ = deltas;
            to_ = after.state;
            return takes_;
        };
        replica_ = value_of(open_relay_replica(std::move(made)));
        const auto whole = replica_->scratch() / "came";
        std::filesystem::copy(steps_.state(0), whole, std::filesystem::copy_options::recursive);
        ReplicaRecord at;
        at.state_seq = 1;
        at.state = steps_.digest(0);
        value_of(replica_->adopt(whole, at));
    }
    ReplicaRecord after(std::size_t state) {
        ReplicaRecord record = *value_of(replica_->load());
        record.state = steps_.digest(state);
        return record;
    }
    bool any_handed_left() const {
        return std::ranges::any_of(handed_, [](const auto& file) { return exists(file); });
    }

    CheckpointSteps steps_{4};
    std::vector<std::filesystem::path> handed_;
    StateDigest to_;
    bool takes_ = true;
    int asked_ = 0;
    std::unique_ptr<Replica> replica_;
};

TEST_F(HandingRelay, LeavesTheFilesToWhoDecodesThem) {
    const auto fetched = steps_.delta(0, 1, Codec::kSwift);
    const ApplyReport report = value_of(replica_->apply({fetched}, after(1)));
    EXPECT_EQ(report.deltas_applied, 1U);
    EXPECT_GT(report.changed_elements, 0U);
    EXPECT_EQ(to_, steps_.digest(1));
    std::filesystem::remove(fetched);
    ASSERT_EQ(handed_.size(), 1U);
    StagingHolder held(value_of(Checkpoint::open(steps_.state(0))));
    held.write(
        value_of(decode_staged(held, handed_, steps_.digest(0), steps_.digest(1), "rank 7")));
    EXPECT_EQ(held.digest(), to_text(steps_.digest(1)));
    EXPECT_EQ(asked_, 0);
}

TEST_F(HandingRelay, AsksForWordsWhereNobodyDecodes) {
    takes_ = false;
    EXPECT_EQ(outcome_of(replica_->apply({steps_.delta(0, 1, Codec::kSwift)}, after(1))),
              "unavailable");
    EXPECT_EQ(asked_, 1);
    EXPECT_FALSE(handed_.empty());
    EXPECT_FALSE(any_handed_left());
}

TEST_F(HandingRelay, HandsOverNothingThatLeadsElsewhereThanItsCommitSays) {
    EXPECT_NE(outcome_of(replica_->apply({steps_.delta(0, 1, Codec::kSwift)}, after(2))), "ok");
    EXPECT_EQ(outcome_of(replica_->apply({steps_.delta(1, 2, Codec::kSwift)}, after(2))),
              "wrong_base");
    EXPECT_TRUE(handed_.empty());
}

}  // namespace
}  // namespace wisp::testing
