// Steps whose changes are found while the trainer stands still, and coded when it has moved on.
#include <gtest/gtest.h>

#include "checkpoint/block_feed.hpp"
#include "checkpoint_steps.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/diff_weights.hpp"
#include "doubles/memory_store.hpp"
#include "gated_store.hpp"
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
    /// More than the memory of a 32nd of the weights holds.
    void flip_all() {
        for (Tensor& tensor : tensors_) {
            for (std::size_t at = 0; at < tensor.bytes.size(); at += 64) {
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
        const DiffReport written = value_of(
            write_buffered(before, before.digest(), kept.blocks(), folder / "kept", options));
        const DiffReport whole = value_of(diff(before, after, folder / "whole", options));
        EXPECT_EQ(written.result, after.digest());
        EXPECT_EQ(written.changed_elements, whole.changed_elements);
        EXPECT_EQ(written.changed_tensors, 2U);
        EXPECT_EQ(value_of(prove_changes(before, before.digest(), {folder / "kept"}, 2)).result,
                  after.digest());
    }
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
        value_of(write_buffered(first, first.digest(), rebased.blocks(), folder / "kept", {}));
    EXPECT_EQ(written.result, second.digest());
    EXPECT_EQ(written.changed_elements, left);
    EXPECT_EQ(left, value_of(diff(first, second, folder / "whole")).changed_elements);
}

class Found : public ::testing::Test {
  protected:
    Found() { value_of(init_run(run_, {})); }
    ~Found() override { store_->open(); }

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
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
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

}  // namespace
}  // namespace wisp::testing
