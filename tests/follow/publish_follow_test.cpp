// A run from end to end over a store in memory: what is published is what replicas hold.
#include <gtest/gtest.h>

#include <map>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp::testing {
namespace {

class PublishFollow : public ::testing::Test {
  protected:
    PublishFollow() { value_of(init_run(run_, {})); }

    std::unique_ptr<Replica> folder_replica(const std::string& name) {
        return value_of(open_folder_replica(folder_ / name));
    }
    PublishReport publish(Publisher& publisher, std::size_t state, std::uint64_t step) {
        return value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(state))), step));
    }

    CheckpointSteps steps_{6};
    TempFolder folder_;
    Location run_{std::make_shared<MemoryStore>(system_clock()), "runs/a", "memory:a"};
};

TEST_F(PublishFollow, EveryStateArrivesBitForBit) {
    auto baseline = folder_replica("baseline");
    Publisher publisher = value_of(Publisher::open(run_, *baseline, {}));
    auto replica = folder_replica("replica");
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    EXPECT_FALSE(value_of(follower.catch_up()).moved);
    for (std::size_t i = 0; i < 6; ++i) {
        const PublishReport report = publish(publisher, i, i);
        EXPECT_EQ(report.state, steps_.digest(i));
        EXPECT_EQ(report.kind_text(), i == 0 ? "anchor" : "delta");
        EXPECT_TRUE(value_of(follower.catch_up()).moved);
        EXPECT_TRUE(steps_.holds(folder_ / "replica", i));
        EXPECT_EQ(follower.at().step, i);
    }
}

TEST_F(PublishFollow, ALateJoinerArrivesAtTheNewestState) {
    auto baseline = value_of(open_memory_replica());
    PublishOptions options;
    options.anchor_every = 3;
    Publisher publisher = value_of(Publisher::open(run_, *baseline, options));
    for (std::size_t i = 0; i < 6; ++i) publish(publisher, i, i);
    auto replica = value_of(open_memory_replica());
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    EXPECT_TRUE(value_of(follower.catch_up()).moved);
    EXPECT_EQ(value_of(digest_of(*replica->weights())), steps_.digest(5));
}

/// Flips a bit in the first so many answers for each data object.
class LossyStore : public MemoryStore {
  public:
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        auto count = MemoryStore::read(key, offset, into);
        if (!key.ends_with(".safetensors")) return count;
        if (asked_[key]++ < damaged && count) into[*count / 2] ^= std::byte{1};
        return count;
    }
    int damaged = 0;

  private:
    std::map<std::string, int> asked_;
};

TEST_F(PublishFollow, WhatComesDamagedIsAskedForOnceMore) {
    for (const int damaged : {1, 2}) {
        const auto store = std::make_shared<LossyStore>();
        run_.store = store;
        value_of(init_run(run_, {}));
        auto baseline = value_of(open_memory_replica());
        Publisher publisher = value_of(Publisher::open(run_, *baseline, {}));
        for (std::size_t i = 0; i < 3; ++i) publish(publisher, i, i);
        store->damaged = damaged;
        auto replica = value_of(open_memory_replica());
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        // The one anchor and its deltas are the only way.
        EXPECT_EQ(outcome_of(follower.catch_up()), damaged == 1 ? "ok" : "gap");
        EXPECT_EQ(follower.at().step, damaged == 1 ? 2U : 0U);
    }
}

TEST_F(PublishFollow, ARestartedReplicaGoesOn) {
    auto baseline = folder_replica("baseline");
    Publisher publisher = value_of(Publisher::open(run_, *baseline, {}));
    publish(publisher, 0, 0);
    for (std::size_t i = 1; i < 6; ++i) {
        publish(publisher, i, i);
        auto replica = folder_replica("replica");
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        value_of(follower.catch_up());
        EXPECT_TRUE(steps_.holds(folder_ / "replica", i));
    }
}

TEST_F(PublishFollow, AnotherPublisherFencesTheFirst) {
    auto first_baseline = folder_replica("first");
    Publisher first = value_of(Publisher::open(run_, *first_baseline, {}));
    publish(first, 0, 0);
    auto second_baseline = folder_replica("second");
    Publisher second = value_of(Publisher::open(run_, *second_baseline, {}));
    publish(second, 1, 1);
    const auto refused = first.publish(value_of(Checkpoint::open(steps_.state(2))), 2);
    EXPECT_EQ(outcome_of(refused), "fenced");
}

TEST_F(PublishFollow, OfTwoThatStartARunTogetherOneIsFenced) {
    auto first_baseline = folder_replica("first");
    auto second_baseline = folder_replica("second");
    Publisher first = value_of(Publisher::open(run_, *first_baseline, {}));
    Publisher second = value_of(Publisher::open(run_, *second_baseline, {}));
    const Checkpoint state = value_of(Checkpoint::open(steps_.state(0)));
    EXPECT_EQ(outcome_of(first.publish(state, 0)), "fenced");
    EXPECT_EQ(outcome_of(second.publish(state, 0)), "ok");
}

TEST_F(PublishFollow, ABranchSharesWhatIsInTheBucket) {
    auto baseline = value_of(open_memory_replica());
    Publisher publisher = value_of(Publisher::open(run_, *baseline, {}));
    for (std::size_t i = 0; i < 4; ++i) publish(publisher, i, i * 10);
    const Location branch{run_.store, "runs/b", "memory:b"};
    InitOptions options;
    options.branch_of = run_;
    options.branch_step = 20;
    EXPECT_EQ(value_of(init_run(branch, options)).branch_step, 20);
    auto own = value_of(open_memory_replica());
    Publisher on_branch = value_of(Publisher::open(branch, *own, {}));
    EXPECT_EQ(value_of(digest_of(*own->weights())), steps_.digest(2));
    value_of(on_branch.publish(value_of(Checkpoint::open(steps_.state(5))), 21));
    auto replica = folder_replica("replica");
    Follower follower = value_of(Follower::open(branch, *replica, {}));
    value_of(follower.catch_up());
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 5));
}

TEST_F(PublishFollow, FoldersBranchToo) {
    const Location origin = value_of(open_location((folder_ / "bucket/a").string()));
    const Location branch = value_of(open_location((folder_ / "bucket/b").string()));
    value_of(init_run(origin, {}));
    auto baseline = value_of(open_memory_replica());
    Publisher publisher = value_of(Publisher::open(origin, *baseline, {}));
    for (std::size_t i = 0; i < 4; ++i) publish(publisher, i, i);
    InitOptions options;
    options.branch_of = origin;
    options.branch_step = 2;
    value_of(init_run(branch, options));
    auto replica = value_of(open_memory_replica());
    Follower follower = value_of(Follower::open(branch, *replica, {}));
    value_of(follower.catch_up());
    EXPECT_EQ(value_of(digest_of(*replica->weights())), steps_.digest(2));
}

}  // namespace
}  // namespace wisp::testing
