// A bucket in TRL's layout: what wisp publishes there, and what it makes of files from elsewhere.
#include <gtest/gtest.h>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "log/run_keys.hpp"
#include "wisp/inspect.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp::testing {
namespace {

class TrlLayout : public ::testing::Test {
  protected:
    PublishReport publish(std::size_t state, std::uint64_t step) {
        return value_of(publish_trl(where_, *baseline_, opened(state), step, options_));
    }
    Checkpoint opened(std::size_t state) { return value_of(Checkpoint::open(steps_.state(state))); }

    Follower follower(Replica& replica, FollowOptions options = {}) {
        options.on_event = [this](const FollowEvent& event) -> Result<void> {
            events_.push_back(event);
            return {};
        };
        return value_of(open_trl_follower(where_, replica, options));
    }
    bool holds(const Replica& replica, std::size_t state) {
        return replica.weights() != nullptr &&
               value_of(digest_of(*replica.weights())) == steps_.digest(state);
    }
    bool is_there(const std::string& name) { return store_->head(where_.key(name)).has_value(); }
    void put(const std::string& name, const Bytes& bytes) {
        value_of(store_->put(where_.key(name), bytes));
    }
    Bytes get(const std::string& name) {
        return value_of(read_whole(*store_, where_.key(name), 1 << 24));
    }

    /// As TRL writes it: no base, no digest, no seal.
    Bytes foreign_delta(std::size_t from, std::size_t to) {
        std::vector<Tensor> parts;
        for (std::size_t t = 0; t < steps_.tensors(from).size(); ++t) {
            const Tensor& old_tensor = steps_.tensors(from)[t];
            const Tensor& new_tensor = steps_.tensors(to)[t];
            const DtypeTraits& traits = traits_of(old_tensor.info.dtype);
            Tensor indices{{old_tensor.info.name + ".indices", Dtype::kI32, {}}, {}};
            const Dtype dtype = traits.bits < 8 ? Dtype::kU8 : old_tensor.info.dtype;
            Tensor values{{old_tensor.info.name + ".values", dtype, {}}, {}};
            std::uint64_t count = 0;
            for (std::size_t i = 0; i < old_tensor.bytes.size() / traits.element_bytes; ++i) {
                const std::uint64_t bits = element_of(new_tensor.bytes, traits, i);
                if (bits == element_of(old_tensor.bytes, traits, i)) continue;
                append_fixed(indices.bytes, static_cast<std::int32_t>(i));
                values.bytes.resize(values.bytes.size() + traits.element_bytes);
                store_element(values.bytes, traits, count++, bits);
            }
            indices.info.shape = values.info.shape = {count};
            if (count == 0) continue;
            parts.push_back(std::move(indices));
            parts.push_back(std::move(values));
        }
        return safetensors_file(parts, {{"format", "sparse_weight_patch"},
                                        {"version", "1"},
                                        {"sparse", "True"},
                                        {"model_version", std::to_string(to)}});
    }
    Bytes foreign_anchor(const std::vector<Tensor>& tensors, std::size_t model_version) {
        return safetensors_file(tensors, {{"format", "sparse_weight_patch"},
                                          {"version", "1"},
                                          {"sparse", "False"},
                                          {"model_version", std::to_string(model_version)}});
    }
    Bytes foreign_anchor(std::size_t state) { return foreign_anchor(steps_.tensors(state), state); }

    CheckpointSteps steps_{6};
    TempFolder folder_;
    std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
    Location where_{store_, "runs/a", "memory:a"};
    TrlPublishOptions options_;
    std::unique_ptr<Replica> baseline_ =
        value_of(open_folder_replica(folder_ / "baseline", {.durable = false}));
    std::vector<FollowEvent> events_;
};

class TrlRoundTrip : public TrlLayout, public ::testing::WithParamInterface<Codec> {};

TEST_P(TrlRoundTrip, EveryStateArrivesProvenWhateverTheNumbersBetween) {
    options_.codec = GetParam();
    options_.anchor_every = 2;
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    Follower following = follower(*replica);
    EXPECT_FALSE(value_of(following.catch_up()).moved);
    for (std::size_t i = 0; i < 6; ++i) {
        const std::uint64_t step = 7 * i + 3;
        const PublishReport report = publish(i, step);
        EXPECT_EQ(report.kind_text(), i == 0 ? "anchor" : "delta");
        EXPECT_EQ(report.anchored, i % 2 == 0);
        EXPECT_EQ(is_there(trl_delta_key(step)), i > 0);
        EXPECT_EQ(is_there(trl_anchor_key(step)), i % 2 == 0);
        const FollowReport moved = value_of(following.catch_up());
        EXPECT_TRUE(moved.moved);
        EXPECT_FALSE(moved.at.unproven);
        EXPECT_EQ(moved.at.step, step);
        EXPECT_TRUE(steps_.holds(folder_ / "replica", i));
        EXPECT_FALSE(value_of(following.catch_up()).moved);
    }
}

TEST_P(TrlRoundTrip, ALateJoinerStartsFromTheNewestAnchor) {
    options_.codec = GetParam();
    options_.anchor_every = 3;
    for (std::size_t i = 0; i < 6; ++i) publish(i, i);
    value_of(store_->remove(where_.key(trl_anchor_key(0))));
    value_of(store_->remove(where_.key(trl_delta_key(1))));
    auto replica = value_of(open_memory_replica());
    const FollowReport report = value_of(follower(*replica).catch_up());
    EXPECT_EQ(report.at.step, 5U);
    EXPECT_FALSE(report.at.unproven);
    EXPECT_TRUE(holds(*replica, 5));
    ASSERT_EQ(events_.size(), 1U);
    EXPECT_EQ(events_[0].kind, FollowEvent::Kind::kJoined);
    EXPECT_EQ(events_[0].deltas_applied, 2U);
}

INSTANTIATE_TEST_SUITE_P(Codecs, TrlRoundTrip, ::testing::Values(Codec::kPlain, Codec::kGap),
                         [](const auto& codec) { return std::string(name_of(codec.param)); });

TEST_F(TrlLayout, TheCompactCodecIsRefused) {
    options_.codec = Codec::kCompact;
    EXPECT_EQ(outcome_of(publish_trl(where_, *baseline_, opened(0), 0, options_)), "invalid");
}

TEST_F(TrlLayout, AStepMustBeLaterThanTheNewest) {
    publish(0, 4);
    EXPECT_EQ(outcome_of(publish_trl(where_, *baseline_, opened(1), 4, options_)), "conflict");
    EXPECT_EQ(outcome_of(publish_trl(where_, *baseline_, opened(1), 3, options_)), "conflict");
    EXPECT_EQ(value_of(publish_trl(where_, *baseline_, opened(1), {}, options_)).step, 5U);
}

TEST_F(TrlLayout, PublishingAStepAgainFindsItThere) {
    publish(0, 0);
    publish(1, 1);
    EXPECT_EQ(publish(1, 1).kind_text(), "present");
}

TEST_F(TrlLayout, AnUnchangedStepIsPublishedAndFollowed) {
    publish(0, 0);
    EXPECT_EQ(publish(0, 1).changed_elements, 0U);
    auto replica = value_of(open_memory_replica());
    EXPECT_EQ(value_of(follower(*replica).catch_up()).at.step, 1U);
}

TEST_F(TrlLayout, ALostBaselineIsMadeAgainFromTheBucket) {
    publish(0, 0);
    publish(1, 1);
    baseline_ = value_of(open_memory_replica());
    EXPECT_EQ(publish(2, 2).kind_text(), "delta");
    auto replica = value_of(open_memory_replica());
    value_of(follower(*replica).catch_up());
    EXPECT_TRUE(holds(*replica, 2));
}

TEST_F(TrlLayout, TwoPublishersTakeTurns) {
    auto other = value_of(open_memory_replica());
    publish(0, 0);
    value_of(publish_trl(where_, *other, opened(1), 1, options_));
    publish(2, 2);
    value_of(publish_trl(where_, *other, opened(3), 3, options_));
    auto replica = value_of(open_memory_replica());
    EXPECT_FALSE(value_of(follower(*replica).catch_up()).at.unproven);
    EXPECT_TRUE(holds(*replica, 3));
}

TEST_F(TrlLayout, APublishedAnchorIsACheckpoint) {
    publish(0, 0);
    write_bytes(folder_ / "anchor", get(trl_anchor_key(0)));
    EXPECT_TRUE(steps_.holds(folder_ / "anchor", 0));
    EXPECT_FALSE(value_of(inspect(folder_ / "anchor")).is_delta());
}

TEST_F(TrlLayout, ADamagedAnchorOfOursIsNotTaken) {
    publish(0, 0);
    Bytes anchor = get(trl_anchor_key(0));
    anchor.back() ^= std::byte{1};
    put(trl_anchor_key(0), anchor);
    auto replica = value_of(open_memory_replica());
    EXPECT_EQ(outcome_of(follower(*replica).catch_up()), "corrupt");
    EXPECT_EQ(replica->weights(), nullptr);
}

TEST_F(TrlLayout, ForeignFilesAreFollowedOnTrust) {
    put(trl_anchor_key(10), foreign_anchor(0));
    put(trl_delta_key(12), foreign_delta(0, 1));
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    {
        Follower following = follower(*replica);
        FollowReport report = value_of(following.catch_up());
        EXPECT_TRUE(report.at.unproven);
        EXPECT_TRUE(steps_.holds(folder_ / "replica", 1));
        put(trl_delta_key(20), foreign_delta(1, 2));
        report = value_of(following.catch_up());
        EXPECT_TRUE(report.at.unproven);
        EXPECT_EQ(report.at.step, 20U);
        EXPECT_EQ(report.at.state, steps_.digest(2));
    }
    replica.reset();
    replica = value_of(open_folder_replica(folder_ / "replica"));
    put(trl_delta_key(21), foreign_delta(2, 3));
    Follower restarted = follower(*replica);
    EXPECT_TRUE(value_of(restarted.catch_up()).at.unproven);
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 3));
    // From here on wisp vouches for the whole state, no matter what wrote the files before.
    EXPECT_EQ(publish(4, 22).kind_text(), "delta");
    EXPECT_FALSE(value_of(restarted.catch_up()).at.unproven);
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 4));
}

TEST_F(TrlLayout, AnAnchorInPlaceOfADeltaIsAStep) {
    put(trl_anchor_key(1), foreign_anchor(0));
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica);
    value_of(following.catch_up());
    put(trl_anchor_key(2), foreign_anchor(1));
    put(trl_delta_key(3), foreign_delta(1, 2));
    EXPECT_EQ(value_of(following.catch_up()).at.step, 3U);
    EXPECT_TRUE(holds(*replica, 2));
    put(trl_anchor_key(4), foreign_anchor(3));
    EXPECT_EQ(value_of(following.catch_up()).at.step, 4U);
    EXPECT_TRUE(holds(*replica, 3));
}

TEST_F(TrlLayout, AnAnchorWithoutUnchangedTensorsIsAPatchOverTheStateBefore) {
    std::vector<Tensor> second = steps_.tensors(0);
    second[0] = steps_.tensors(1)[0];
    put(trl_anchor_key(1), foreign_anchor(0));
    put(trl_anchor_key(2), foreign_anchor({second[0]}, 2));
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica);
    const FollowReport report = value_of(following.catch_up());
    EXPECT_EQ(report.at.step, 2U);
    write_bytes(folder_ / "second", safetensors_file(second));
    EXPECT_EQ(report.at.state, value_of(digest_of(value_of(Checkpoint::open(folder_ / "second")))));

    std::vector<Tensor> third = second;
    third[1] = steps_.tensors(2)[1];
    put(trl_anchor_key(3), foreign_anchor({third[1]}, 3));
    write_bytes(folder_ / "third", safetensors_file(third));
    EXPECT_EQ(value_of(following.catch_up()).at.state,
              value_of(digest_of(value_of(Checkpoint::open(folder_ / "third")))));
}

TEST_F(TrlLayout, NothingStartsFromAnAnchorThatLacksTensors) {
    put(trl_anchor_key(2), foreign_anchor({steps_.tensors(1)[0]}, 2));
    FollowOptions with_base;
    with_base.base = steps_.state(0);
    auto replica = value_of(open_memory_replica());
    EXPECT_EQ(value_of(follower(*replica, with_base).catch_up()).at.step, 2U);

    put(trl_delta_key(3), foreign_delta(1, 2));
    auto without = value_of(open_memory_replica());
    EXPECT_EQ(outcome_of(follower(*without).catch_up()), "corrupt");
    put(trl_anchor_key(2),
        safetensors_file({steps_.tensors(1)[0]}, {{"total_elements", "999999"}}));
    const auto refused = follower(*without).catch_up();
    EXPECT_EQ(outcome_of(refused), "corrupt");
    EXPECT_NE(text_of(refused).find("left out tensors"), std::string::npos) << text_of(refused);
}

TEST_F(TrlLayout, ADamagedDeltaKeepsTheStateUntilItIsWhole) {
    put(trl_anchor_key(1), foreign_anchor(0));
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    Follower following = follower(*replica);
    value_of(following.catch_up());
    const Bytes whole = foreign_delta(0, 1);
    for (const std::size_t kept : {std::size_t{0}, std::size_t{7}, whole.size() - 1}) {
        put(trl_delta_key(2), Bytes(whole.begin(), whole.begin() + static_cast<long>(kept)));
        EXPECT_EQ(outcome_of(following.catch_up()), "corrupt") << kept;
        EXPECT_TRUE(steps_.holds(folder_ / "replica", 0));
        EXPECT_EQ(following.at().step, 1U);
    }
    put(trl_delta_key(2), whole);
    EXPECT_EQ(value_of(following.catch_up()).at.step, 2U);
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 1));
}

TEST_F(TrlLayout, ALaterAnchorLeadsPastADamagedDelta) {
    put(trl_anchor_key(1), foreign_anchor(0));
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica);
    value_of(following.catch_up());
    put(trl_delta_key(2), Bytes(9));
    EXPECT_EQ(outcome_of(following.catch_up()), "corrupt");
    const PublishReport mended = publish(3, 3);
    EXPECT_EQ(mended.kind_text(), "anchor");
    EXPECT_EQ(value_of(following.catch_up()).at.step, 3U);
    EXPECT_TRUE(holds(*replica, 3));
}

TEST_F(TrlLayout, ALateJoinerStopsBeforeADamagedDelta) {
    put(trl_anchor_key(1), foreign_anchor(0));
    put(trl_delta_key(2), foreign_delta(0, 1));
    put(trl_delta_key(3), Bytes(100));
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica);
    EXPECT_EQ(outcome_of(following.catch_up()), "corrupt");
    EXPECT_EQ(following.at().step, 2U);
    EXPECT_TRUE(holds(*replica, 1));
}

TEST_F(TrlLayout, AProvenDeltaFromAnotherStateSendsTheReplicaBackToAnAnchor) {
    for (std::size_t i = 0; i < 3; ++i) publish(i, 2 * i);
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica);
    value_of(following.catch_up());
    // A file that nobody vouches for comes between, and leads astray.
    put(trl_delta_key(5), foreign_delta(2, 5));
    value_of(following.catch_up());
    EXPECT_TRUE(holds(*replica, 5));
    value_of(store_->remove(where_.key(trl_delta_key(5))));
    publish(3, 6);
    EXPECT_EQ(value_of(following.catch_up()).at.step, 6U);
    EXPECT_TRUE(holds(*replica, 3));
    EXPECT_EQ(events_[events_.size() - 2].kind, FollowEvent::Kind::kFault);
    EXPECT_EQ(events_.back().kind, FollowEvent::Kind::kJoined);
}

TEST_F(TrlLayout, WhatAppearsBehindTheReplicaIsIgnored) {
    put(trl_anchor_key(4), foreign_anchor(0));
    put(trl_delta_key(6), foreign_delta(0, 1));
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica);
    value_of(following.catch_up());
    put(trl_delta_key(5), foreign_delta(0, 2));
    put(trl_delta_key(6), foreign_delta(0, 3));
    put("deltas/step_7.safetensors", foreign_delta(1, 2));
    put("deltas/README.md", Bytes(3));
    EXPECT_FALSE(value_of(following.catch_up()).moved);
    EXPECT_TRUE(holds(*replica, 1));
}

TEST_F(TrlLayout, WithoutAnAnchorABaseIsNeeded) {
    publish(0, 0);
    for (std::size_t i = 1; i < 5; ++i) publish(i, i);
    value_of(store_->remove(where_.key(trl_anchor_key(0))));
    auto replica = value_of(open_memory_replica());
    EXPECT_EQ(outcome_of(follower(*replica).catch_up()), "gap");
    for (const std::size_t base : {0U, 2U, 4U}) {
        FollowOptions options;
        options.base = steps_.state(base);
        auto from_base = value_of(open_memory_replica());
        EXPECT_EQ(value_of(follower(*from_base, options).catch_up()).at.step, 4U);
        EXPECT_TRUE(holds(*from_base, 4));
    }
    FollowOptions wrong;
    wrong.base = steps_.state(5);
    EXPECT_EQ(outcome_of(follower(*replica, wrong).catch_up()), "wrong_base");
}

TEST_F(TrlLayout, ABucketThatWasSetBackIsNoticed) {
    for (std::size_t i = 0; i < 3; ++i) publish(i, i);
    auto replica = value_of(open_memory_replica());
    value_of(follower(*replica).catch_up());
    value_of(store_->remove(where_.key(trl_delta_key(2))));
    EXPECT_EQ(outcome_of(follower(*replica).catch_up()), "forked");
    FollowOptions accepting;
    accepting.accept_rewind = true;
    EXPECT_EQ(value_of(follower(*replica, accepting).catch_up()).at.step, 1U);
    EXPECT_TRUE(holds(*replica, 1));
}

TEST_F(TrlLayout, AFollowerStopsWhereItIsTold) {
    for (std::size_t i = 0; i < 6; ++i) publish(i, 2 * i);
    FollowOptions options;
    options.until_step = 5;
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica, options);
    const FollowReport report = value_of(following.follow());
    EXPECT_TRUE(report.reached_until);
    EXPECT_EQ(report.at.step, 4U);
    EXPECT_TRUE(holds(*replica, 2));
}

TEST_F(TrlLayout, StepsGoOnPastAMillion) {
    const std::uint64_t first = 999'998;
    for (std::size_t i = 0; i < 4; ++i) publish(i, first + i);
    auto replica = value_of(open_memory_replica());
    Follower following = follower(*replica);
    EXPECT_EQ(value_of(following.catch_up()).at.step, 1'000'001U);
    publish(4, 1'000'002);
    EXPECT_EQ(value_of(following.catch_up()).at.step, 1'000'002U);
    EXPECT_TRUE(holds(*replica, 4));
}

}  // namespace
}  // namespace wisp::testing
