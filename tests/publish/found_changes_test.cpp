// Steps whose changes are found while the trainer stands still, and coded when it has moved on.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "checkpoint/block_feed.hpp"
#include "checkpoint_steps.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/diff_weights.hpp"
#include "doubles/memory_store.hpp"
#include "gated_store.hpp"
#include "kernel/scatter.hpp"
#include "kernel/touched.hpp"
#include "wisp/async_publisher.hpp"
#include "wisp/follower.hpp"

namespace wisp::testing {
namespace {

/// Tensors in memory that a test writes to at will.
class TrainerWeights : public Weights {
  public:
    explicit TrainerWeights(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
        std::vector<TensorInfo> infos;
        for (const Tensor& tensor : tensors_) infos.push_back(tensor.info);
        schema_ = value_of(Schema::make(std::move(infos)));
    }
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override {
        return tensors_[tensor].bytes;
    }
    void flip(std::size_t tensor, std::size_t at) { tensors_[tensor].bytes[at] ^= std::byte{1}; }
    /// More than the memory of a 24th of the weights holds.
    void flip_all() { flip_every(64); }
    void flip_every(std::size_t distance) {
        for (Tensor& tensor : tensors_) {
            for (std::size_t at = 0; at < tensor.bytes.size(); at += distance) {
                tensor.bytes[at] ^= std::byte{1};
            }
        }
    }
    StateDigest digest() const { return value_of(digest_of(*this)); }

  private:
    std::vector<Tensor> tensors_;
    Schema schema_;
};

/// A little more than one block, so that changes lie in several.
TrainerWeights two_blocks() {
    Rng rng(5);
    return TrainerWeights({random_tensor("a", Dtype::kBf16, {kBlockElements + 99}, rng),
                           random_tensor("b", Dtype::kF32, {1000}, rng)});
}

/// A baseline in memory that can be held when a thread other than the test's asks for its weights.
class HeldReplica : public Replica {
  public:
    std::string label() const override { return inner_->label(); }
    const Weights* weights() const override {
        std::unique_lock lock(mutex_);
        if (holding_ && std::this_thread::get_id() != trainer_) {
            arrived_ = true;
            changed_.notify_all();
            changed_.wait(lock, [&] { return !holding_; });
        }
        return inner_->weights();
    }
    bool in_doubt() const override { return inner_->in_doubt(); }
    fs::path scratch() const override { return inner_->scratch(); }
    Result<std::optional<ReplicaRecord>> load() override { return inner_->load(); }
    Result<void> save(const ReplicaRecord& record) override { return inner_->save(record); }
    Result<ApplyReport> apply(const std::vector<fs::path>& deltas,
                              const ReplicaRecord& after) override {
        return inner_->apply(deltas, after);
    }
    Result<void> overwrite(std::span<const MovedBlock> changes,
                           const ReplicaRecord& after) override {
        return inner_->overwrite(changes, after);
    }
    Result<void> adopt(const fs::path& folder, const ReplicaRecord& after) override {
        return inner_->adopt(folder, after);
    }
    Result<void> discard() override { return inner_->discard(); }

    /// As memory goes bad.
    void damage() {
        const auto bytes = inner_->weights()->bytes(0);
        const_cast<std::byte&>(bytes[7]) ^= std::byte{1};  // the replica's own, which it may write
    }
    void hold(bool held) {
        const std::lock_guard lock(mutex_);
        holding_ = held;
        arrived_ = false;
        changed_.notify_all();
    }
    void await_arrival() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return arrived_; });
    }

  private:
    std::unique_ptr<Replica> inner_ = value_of(open_memory_replica());
    std::thread::id trainer_ = std::this_thread::get_id();
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool holding_ = false;
    mutable bool arrived_ = false;
};

ChangeBuffer found_between(const Weights& from, const Weights& to) {
    ChangeBuffer kept;
    WholeStream stream(to);
    EXPECT_EQ(value_of(find_changes(from, stream, {}, kept)).base, value_of(digest_of(from)));
    return kept;
}

TEST(FoundChanges, AreWrittenAsTheDifferenceWouldBe) {
    const TempFolder folder;
    const TrainerWeights before = two_blocks();
    TrainerWeights after = before;
    for (const std::size_t at : {0, 1, 77'000, 65'536, 2'097'200}) after.flip(0, at);
    after.flip(1, 3999);
    for (const Codec codec : {Codec::kCompact, Codec::kSwift, Codec::kPlain, Codec::kGap}) {
        DiffOptions options;
        options.codec = codec;
        const ChangeBuffer kept = found_between(before, after);
        const DiffReport written =
            value_of(write_buffered(before, before.digest(), kept, folder / "kept", options));
        const DiffReport whole = value_of(diff(before, after, folder / "whole", options));
        EXPECT_EQ(written.result, after.digest());
        EXPECT_EQ(written.changed_elements, whole.changed_elements);
        EXPECT_EQ(written.changed_tensors, 2U);
        EXPECT_EQ(value_of(prove_changes(before, before.digest(), {folder / "kept"}, 2)).result,
                  after.digest());
    }
}

/// All that coding needs is taken while the weights are in the cache, so that it reads none again.
TEST(FoundChanges, BringTheOldBitsAndTheDigestOfWhatTheyTouch) {
    const TempFolder folder;
    const TrainerWeights before = two_blocks();
    TrainerWeights after = before;
    for (const std::size_t at : {0, 1, 8, 77'000, 2'097'200}) after.flip(0, at);
    after.flip(1, 3999);
    const ChangeBuffer kept = found_between(before, after);
    ASSERT_EQ(kept.blocks().size(), 3U);
    ASSERT_EQ(kept.touched().size(), kept.blocks().size());
    const auto seeds = seeds_of(before.schema());
    StateDigest reached = before.digest();
    for (std::size_t i = 0; i < kept.blocks().size(); ++i) {
        const MovedBlock& block = kept.blocks()[i];
        const auto old_block =
            before.bytes(block.tensor).subspan(block.first_element * block.changes.element_bytes);
        Bytes old_bits(block.changes.new_bits.size());
        gather(old_block.data(), block.changes.positions, block.changes.element_bytes,
               old_bits.data());
        EXPECT_EQ(block.changes.old_bits, old_bits);
        const TouchedSums expected =
            touched_sums(old_block, block.changes, seeds[block.tensor],
                         block.first_element * block.changes.element_bytes / 8);
        EXPECT_EQ(kept.touched()[i].before, expected.before);
        EXPECT_EQ(kept.touched()[i].after, expected.after);
        reached += kept.touched()[i].after - kept.touched()[i].before;
    }
    EXPECT_EQ(reached, after.digest());
    // Not read again: other weights, said to be those, give the same delta.
    TrainerWeights other = before;
    other.flip_every(1);
    DiffOptions options;
    options.codec = Codec::kSwift;
    value_of(write_buffered(before, before.digest(), kept, folder / "kept", options));
    value_of(write_buffered(other, before.digest(), kept, folder / "again", options));
    EXPECT_EQ(read_bytes(folder / "kept"), read_bytes(folder / "again"));
}

TEST(FoundChanges, ThatAreTooManyAreLetGo) {
    const TrainerWeights before = two_blocks();
    TrainerWeights after = before;
    after.flip_all();
    ChangeBuffer kept(1000);
    WholeStream stream(after);
    value_of(find_changes(before, stream, {}, kept));
    EXPECT_FALSE(kept.complete());
    EXPECT_TRUE(kept.blocks().empty());
}

TEST(FoundChanges, ArePutOntoAStateThatCameBetween) {
    const TempFolder folder;
    const TrainerWeights base = two_blocks();
    TrainerWeights first = base;
    TrainerWeights second = base;
    for (const std::size_t at : {0, 10, 20, 2'097'200}) first.flip(0, at);
    for (const std::size_t at : {2, 10, 20, 21, 30}) second.flip(0, at);  // 20, 21: one element
    second.flip(1, 8);
    ChangeBuffer rebased;
    const std::uint64_t left =
        value_of(rebase_buffered(base, found_between(base, first).blocks(),
                                 found_between(base, second).blocks(), 2, rebased));
    const DiffReport written =
        value_of(write_buffered(first, first.digest(), rebased, folder / "kept", {}));
    EXPECT_EQ(written.result, second.digest());
    EXPECT_EQ(written.changed_elements, left);
    EXPECT_EQ(left, value_of(diff(first, second, folder / "whole")).changed_elements);
}

class Found : public ::testing::Test {
  protected:
    Found() { value_of(init_run(run_, {})); }
    ~Found() override {
        baseline_->hold(false);
        store_->open();
    }

    AsyncPublisher start() {
        return value_of(
            AsyncPublisher::start(value_of(Publisher::open(run_, *baseline_, options_))));
    }
    /// Commits wait from here on, and one stands before the gate.
    void hold(AsyncPublisher& publisher, const Weights& weights, std::uint64_t step) {
        store_->close();
        value_of(publisher.submit(weights, step));
        store_->await_arrival();
    }
    void let_go(AsyncPublisher& publisher) {
        store_->open();
        value_of(publisher.flush());
    }
    StateDigest joined() {
        auto replica = value_of(open_memory_replica());
        value_of(value_of(Follower::open(run_, *replica, {})).catch_up());
        return value_of(digest_of(*replica->weights()));
    }

    std::shared_ptr<GatedStore> store_ =
        std::make_shared<GatedStore>(std::make_shared<MemoryStore>(system_clock()));
    Location run_{store_, "run", "gated:run"};
    std::unique_ptr<HeldReplica> baseline_ = std::make_unique<HeldReplica>();
    PublishOptions options_;
};

TEST_F(Found, WhatIsPublishedIsWhatWasSubmitted) {
    AsyncPublisher publisher = start();
    TrainerWeights weights = two_blocks();
    value_of(publisher.submit(weights, 0));
    weights.flip(0, 7);
    hold(publisher, weights, 1);
    weights.flip(0, 7);  // back to what it was, and another
    weights.flip(0, 2'097'200);
    value_of(publisher.submit(weights, 2));
    const StateDigest submitted = weights.digest();
    weights.flip_all();
    let_go(publisher);
    EXPECT_EQ(joined(), submitted);
    const auto log = value_of(read_log(run_, 1, {}));
    EXPECT_EQ(log.front().changed_elements, 2U);
}

TEST_F(Found, ADeltaThatCannotBeWrittenIsWrittenLater) {
    AsyncPublisher publisher = start();
    TrainerWeights weights = two_blocks();
    value_of(publisher.submit(weights, 0));
    weights.flip(0, 7);
    hold(publisher, weights, 1);
    weights.flip(1, 7);
    value_of(publisher.submit(weights, 2));
    const fs::path outgoing = baseline_->scratch() / "outgoing";
    fs::remove_all(outgoing);
    store_->open();
    EXPECT_FALSE(publisher.flush());
    fs::create_directories(outgoing);
    while (!publisher.flush()) {
    }
    EXPECT_EQ(joined(), weights.digest());
}

TEST_F(Found, StepsTooDenseToBeKeptGoTheLongWay) {
    options_.change_buffer_bytes = 0;
    AsyncPublisher publisher = start();
    TrainerWeights weights = two_blocks();
    value_of(publisher.submit(weights, 0));
    weights.flip(0, 1);
    hold(publisher, weights, 1);
    weights.flip_all();  // waits, dense, behind a sparse one
    value_of(publisher.submit(weights, 2));
    let_go(publisher);
    EXPECT_EQ(joined(), weights.digest());
    const TrainerWeights committed = weights;
    weights.flip_all();
    hold(publisher, weights, 3);
    weights = committed;  // waits, sparse, behind a dense one; the second is found alone
    weights.flip(0, 2);
    value_of(publisher.submit(weights, 4));
    weights.flip(0, 3);
    EXPECT_TRUE(value_of(publisher.submit(weights, 5)).folded);
    let_go(publisher);
    EXPECT_EQ(joined(), weights.digest());
}

TEST_F(Found, DenseStepsAreCopiedAndCodedWhenTheTrainerHasGoneOn) {
    AsyncPublisher publisher = start();
    TrainerWeights weights = two_blocks();
    value_of(publisher.submit(weights, 0));
    std::vector<StateDigest> states;
    for (const std::uint64_t step : {1, 2, 3}) {
        weights.flip_every(1);  // more than a list is made of
        baseline_->hold(true);
        value_of(publisher.submit(weights, step));
        baseline_->await_arrival();
        EXPECT_TRUE(fs::is_empty(baseline_->scratch() / "outgoing")) << "coded before it returned";
        states.push_back(weights.digest());
        weights.flip_every(3);  // what it does next is no part of the step
        baseline_->hold(false);
        let_go(publisher);
        EXPECT_EQ(joined(), states.back());
    }
    weights.flip(0, 9);  // a sparse one after dense ones
    value_of(publisher.submit(weights, 4));
    value_of(publisher.flush());
    EXPECT_EQ(joined(), weights.digest());
}

TEST_F(Found, ABaselineThatIsDamagedBehindACopyIsFetchedAgain) {
    AsyncPublisher publisher = start();
    TrainerWeights weights = two_blocks();
    value_of(publisher.submit(weights, 0));
    for (const std::uint64_t step : {1, 2}) {
        weights.flip_every(1);
        baseline_->hold(true);
        value_of(publisher.submit(weights, step));
        baseline_->await_arrival();
        if (step == 2) baseline_->damage();
        baseline_->hold(false);
        while (!publisher.flush()) {
        }
        EXPECT_EQ(joined(), weights.digest());
    }
}

TEST_F(Found, SubmittingWaitsForNoCodingOfTheStepBefore) {
    AsyncPublisher publisher = start();
    TrainerWeights weights = two_blocks();
    value_of(publisher.submit(weights, 0));
    baseline_->hold(true);
    weights.flip(0, 1);
    value_of(publisher.submit(weights, 1));
    baseline_->await_arrival();  // about to be coded
    weights.flip(0, 2);
    EXPECT_FALSE(value_of(publisher.submit(weights, 2)).folded);
    weights.flip(0, 3);
    EXPECT_TRUE(value_of(publisher.submit(weights, 3)).folded);
    baseline_->hold(false);
    let_go(publisher);
    EXPECT_EQ(joined(), weights.digest());
}

class FoundRebase : public Found, public ::testing::WithParamInterface<bool> {};

TEST_P(FoundRebase, SubmittingWaitsForNoStepThatIsPutOntoTheOneBefore) {
    const bool dense = GetParam();
    if (dense) options_.change_buffer_bytes = 0;
    AsyncPublisher publisher = start();
    TrainerWeights weights = two_blocks();
    const auto train = [&](std::size_t at) {
        if (dense) weights.flip_all();
        weights.flip(0, at);
    };
    value_of(publisher.submit(weights, 0));
    train(1);
    hold(publisher, weights, 1);
    train(2);
    EXPECT_FALSE(value_of(publisher.submit(weights, 2)).folded);
    baseline_->hold(true);
    store_->open();
    baseline_->await_arrival();  // committed; the one that waits is about to be put onto it
    train(3);
    EXPECT_TRUE(value_of(publisher.submit(weights, 3)).folded);
    train(4);
    EXPECT_TRUE(value_of(publisher.submit(weights, 4)).folded);
    baseline_->hold(false);
    value_of(publisher.flush());
    EXPECT_EQ(joined(), weights.digest());
    const auto log = value_of(read_log(run_, 10, {}));
    EXPECT_EQ(log.front().step, 4U);
    EXPECT_EQ(log.size(), 4U) << "the fence, and steps 0, 1 and 4";
    train(5);
    value_of(publisher.submit(weights, 5));
    value_of(publisher.flush());
    EXPECT_EQ(joined(), weights.digest());
}

INSTANTIATE_TEST_SUITE_P(Densities, FoundRebase, ::testing::Bool());

}  // namespace
}  // namespace wisp::testing
