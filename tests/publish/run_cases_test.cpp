// What happens in the life of a run: rewinds, other schemas, damage, signatures, lost objects.
#include <gtest/gtest.h>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/follower.hpp"
#include "wisp/maintenance.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"

namespace wisp::testing {
namespace {

class RunCases : public ::testing::Test {
  protected:
    RunCases() { value_of(init_run(run_, {})); }

    Checkpoint state(std::size_t i) { return value_of(Checkpoint::open(steps_.state(i))); }
    Publisher open(Replica& baseline, const PublishOptions& options = {}) {
        return value_of(Publisher::open(run_, baseline, options));
    }
    Follower follow(Replica& replica, const FollowOptions& options = {}) {
        return value_of(Follower::open(run_, replica, options));
    }
    static StateDigest digest(const Replica& replica) {
        return value_of(digest_of(*replica.weights()));
    }
    /// Keys under a prefix of the run, ascending.
    std::vector<std::string> keys(const std::string& prefix) {
        std::vector<std::string> found;
        for (const auto& object : value_of(store_->list(run_.key(prefix), "", 1000))) {
            found.push_back(object.key);
        }
        return found;
    }
    void damage(const std::string& key) {
        auto bytes = value_of(read_whole(*store_, key, 1 << 30));
        bytes[bytes.size() / 2] ^= std::byte{1};
        value_of(store_->put(key, bytes));
    }

    CheckpointSteps steps_{8};
    TempFolder folder_;
    std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>(system_clock());
    Location run_{store_, "runs/a", "memory:a"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::unique_ptr<Replica> replica_ = value_of(open_memory_replica());
};

TEST_F(RunCases, ARewindIsANewEpochThatReplicasFollow) {
    Publisher publisher = open(*baseline_);
    for (std::size_t i = 0; i < 5; ++i) value_of(publisher.publish(state(i), i));
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    const std::uint64_t epoch = follower.at().epoch;
    const PublishReport report = value_of(publisher.publish(state(2), 2));
    EXPECT_TRUE(report.rewound);
    EXPECT_TRUE(report.anchored);
    EXPECT_EQ(report.epoch, epoch + 1);
    value_of(publisher.publish(state(6), 3));
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().epoch, epoch + 1);
    EXPECT_EQ(follower.at().step, 3U);
    EXPECT_EQ(digest(*replica_), steps_.digest(6));
}

TEST_F(RunCases, TheSameStepTwiceIsCommittedOnce) {
    Publisher publisher = open(*baseline_);
    value_of(publisher.publish(state(0), 0));
    const PublishReport first = value_of(publisher.publish(state(1), 1));
    const PublishReport again = value_of(publisher.publish(state(1), 1));
    EXPECT_EQ(again.kind_text(), "present");
    EXPECT_EQ(again.seq, first.seq);
}

TEST_F(RunCases, AStepThatChangedNothingIsAStep) {
    Publisher publisher = open(*baseline_);
    value_of(publisher.publish(state(0), 0));
    const PublishReport report = value_of(publisher.publish(state(0), 1));
    EXPECT_EQ(report.delta_bytes, 0U);
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().step, 1U);
    EXPECT_EQ(digest(*replica_), steps_.digest(0));
}

TEST_F(RunCases, AnotherSchemaForcesAnAnchor) {
    Publisher publisher = open(*baseline_);
    value_of(publisher.publish(state(0), 0));
    value_of(publisher.publish(state(1), 1));
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    std::vector<Tensor> other(steps_.tensors(2).begin(), steps_.tensors(2).end() - 1);
    write_bytes(folder_ / "other.safetensors", safetensors_file(other));
    const Checkpoint changed = value_of(Checkpoint::open(folder_ / "other.safetensors"));
    const PublishReport report = value_of(publisher.publish(changed, 2));
    EXPECT_EQ(report.kind_text(), "anchor");
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), value_of(digest_of(changed)));
    EXPECT_EQ(replica_->weights()->schema().digest(), changed.schema().digest());
}

TEST_F(RunCases, AnAnchorIsDueWhenALateJoinerWouldReadMoreThanItHas) {
    Rng rng(5);
    Tensor weights = random_tensor("w", Dtype::kBf16, {256, 256}, rng);
    Publisher publisher = open(*baseline_);
    std::uint64_t step = 0;
    const auto publish = [&] {
        const fs::path path = folder_ / ("state" + std::to_string(step));
        write_bytes(path, safetensors_file({weights}));
        return value_of(publisher.publish(value_of(Checkpoint::open(path)), step++)).anchored;
    };
    EXPECT_TRUE(publish());
    for (int sparse = 0; sparse < 5; ++sparse) {
        weights.bytes[step * 100] ^= std::byte{1};
        EXPECT_FALSE(publish()) << step;
    }
    int anchors = 0;
    for (int dense = 0; dense < 4; ++dense) {
        weights = random_tensor("w", Dtype::kBf16, {256, 256}, rng);
        anchors += publish() ? 1 : 0;
        EXPECT_LT(value_of(read_status(run_, {})).join.value().bytes, 3 * weights.bytes.size());
    }
    EXPECT_GE(anchors, 2);
    value_of(follow(*replica_).catch_up());
    EXPECT_EQ(value_of(digest_of(*replica_->weights())), publisher.at().state);
}

TEST_F(RunCases, ADamagedBaselineIsFetchedAgain) {
    FolderReplicaOptions cache;
    cache.durable = false;
    {
        auto baseline = value_of(open_folder_replica(folder_ / "baseline", cache));
        Publisher publisher = open(*baseline);
        for (std::size_t i = 0; i < 3; ++i) value_of(publisher.publish(state(i), i));
    }
    Bytes file = read_bytes(folder_ / "baseline" / "model.safetensors");
    file[file.size() - 3] ^= std::byte{4};
    write_bytes(folder_ / "baseline" / "model.safetensors", file);
    auto baseline = value_of(open_folder_replica(folder_ / "baseline", cache));
    Publisher publisher = open(*baseline);
    EXPECT_EQ(value_of(publisher.publish(state(3), 3)).kind_text(), "delta");
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(3));
}

TEST_F(RunCases, ADamagedReplicaHealsByItself) {
    Publisher publisher = open(*baseline_);
    value_of(publisher.publish(state(0), 0));
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    Follower follower = follow(*replica);
    value_of(follower.catch_up());
    Bytes file = read_bytes(folder_ / "replica" / "model.safetensors");
    for (std::size_t i = file.size() / 2; i < file.size(); ++i) file[i] ^= std::byte{1};
    write_bytes(folder_ / "replica" / "model.safetensors", file);
    EXPECT_EQ(value_of(scrub_folder(folder_ / "replica", 1, {})).findings.size(), 1U);
    value_of(publisher.publish(state(1), 1));
    value_of(follower.catch_up());
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 1));
    EXPECT_TRUE(value_of(scrub_folder(folder_ / "replica", 1, {})).findings.empty());
}

TEST_F(RunCases, ALostDeltaIsWorkedAround) {
    PublishOptions options;
    options.anchor_every = 3;
    Publisher publisher = open(*baseline_, options);
    for (std::size_t i = 0; i < 2; ++i) value_of(publisher.publish(state(i), i));
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    value_of(publisher.publish(state(2), 2));
    value_of(store_->remove(keys("deltas/").back()));
    // No anchor yet: the replica keeps what it has, and says what is wrong.
    EXPECT_EQ(outcome_of(follower.catch_up()), "gap");
    EXPECT_EQ(digest(*replica_), steps_.digest(1));
    value_of(publisher.publish(state(3), 3));
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(3));
}

TEST_F(RunCases, EveryDamagedObjectIsNoticed) {
    Publisher publisher = open(*baseline_);
    for (std::size_t i = 0; i < 4; ++i) value_of(publisher.publish(state(i), i));
    for (const char* prefix : {"anchors/", "deltas/", "commits/"}) {
        for (const std::string& key : keys(prefix)) {
            const auto whole = value_of(read_whole(*store_, key, 1 << 30));
            damage(key);
            const auto scrubbed = scrub_run(run_, {}, false);
            EXPECT_TRUE(!scrubbed || !scrubbed->findings.empty()) << key;
            value_of(store_->put(key, whole));
        }
    }
    EXPECT_TRUE(value_of(scrub_run(run_, {}, true)).findings.empty());
}

TEST_F(RunCases, LargeFilesAreSplitAndPutTogether) {
    PublishOptions options;
    options.part_bytes = 500;
    Publisher publisher = open(*baseline_, options);
    for (std::size_t i = 0; i < 3; ++i) value_of(publisher.publish(state(i), i));
    EXPECT_GT(keys("anchors/").size(), 5U);
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(2));
}

TEST_F(RunCases, AShardedFolderArrivesAsAFolder) {
    Publisher publisher = open(*baseline_);
    value_of(publisher.publish(value_of(Checkpoint::open(steps_.sharded(0))), 0));
    value_of(publisher.publish(value_of(Checkpoint::open(steps_.sharded(1))), 1));
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    Follower follower = follow(*replica);
    value_of(follower.catch_up());
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 1));
    EXPECT_TRUE(fs::exists(folder_ / "replica" / "config.json"));
    EXPECT_TRUE(fs::exists(folder_ / "replica" / "m-2.safetensors"));
}

TEST_F(RunCases, AnchorsMayStandOnAPublicCheckpoint) {
    PublishOptions options;
    options.public_base = steps_.state(0);
    options.public_base_name = "somebody/base";
    options.anchor_every = 2;
    Publisher publisher = open(*baseline_, options);
    for (std::size_t i = 1; i < 6; ++i) value_of(publisher.publish(state(i), i));
    EXPECT_LT(value_of(read_status(run_, {})).anchors.back().bytes,
              state(0).schema().total_bytes() / 2);
    Follower without = follow(*replica_);
    EXPECT_EQ(outcome_of(without.catch_up()), "gap");
    FollowOptions with_base;
    with_base.base = steps_.state(0);
    Follower follower = follow(*replica_, with_base);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(5));
}

TEST_F(RunCases, OnlyTrustedCommitsAreFollowed) {
    const SigningKey key = value_of(SigningKey::generate());
    PublishOptions signing;
    signing.signer = RunSigner{key, std::nullopt};
    InitOptions starting;
    starting.signer = signing.signer;
    run_.prefix = "runs/signed";
    value_of(init_run(run_, starting));
    Publisher publisher = open(*baseline_, signing);
    value_of(publisher.publish(state(0), 0));
    FollowOptions trusting;
    trusting.run.trust.keys = {key.public_key()};
    Follower follower = follow(*replica_, trusting);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(0));
    auto other = value_of(open_memory_replica());
    EXPECT_EQ(outcome_of(Publisher::open(run_, *other, {})), "denied");
    trusting.run.trust.keys = {value_of(SigningKey::generate()).public_key()};
    EXPECT_EQ(outcome_of(Follower::open(run_, *replica_, trusting)), "denied");
}

TEST_F(RunCases, ABucketThatWasSetBackIsRefused) {
    Publisher publisher = open(*baseline_);
    value_of(publisher.publish(state(0), 0));
    std::map<std::string, std::vector<std::byte>> copy;
    for (const auto& object : value_of(store_->list("", "", 1000))) {
        copy[object.key] = value_of(read_whole(*store_, object.key, 1 << 30));
    }
    value_of(publisher.publish(state(1), 1));
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    {
        Follower follower = follow(*replica);
        value_of(follower.catch_up());
    }
    for (const auto& object : value_of(store_->list("", "", 1000))) {
        value_of(store_->remove(object.key));
    }
    for (const auto& [key, bytes] : copy) value_of(store_->put(key, bytes));
    Follower follower = follow(*replica);
    EXPECT_EQ(outcome_of(follower.catch_up()), "forked");
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 1));
    FollowOptions accepting;
    accepting.accept_rewind = true;
    Follower again = follow(*replica, accepting);
    value_of(again.catch_up());
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 0));
}

TEST_F(RunCases, AFolderOfAnotherRunIsRefused) {
    Publisher publisher = open(*baseline_);
    value_of(publisher.publish(state(0), 0));
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    {
        Follower follower = follow(*replica);
        value_of(follower.catch_up());
    }
    const Location other{store_, "runs/b", "memory:b"};
    value_of(init_run(other, {}));
    EXPECT_EQ(outcome_of(Follower::open(other, *replica, {})), "forked");
}

TEST_F(RunCases, AReplicaGoesNoFurtherThanAsked) {
    Publisher publisher = open(*baseline_);
    for (std::size_t i = 0; i < 8; ++i) value_of(publisher.publish(state(i), i * 10));
    FollowOptions options;
    options.until_step = 45;
    Follower follower = follow(*replica_, options);
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().step, 40U);
    EXPECT_EQ(digest(*replica_), steps_.digest(4));
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().step, 40U);
}

TEST_F(RunCases, AnExpiredHeadIsReported) {
    PublishOptions options;
    options.expires_after = Milliseconds(1);
    Publisher publisher = open(*baseline_, options);
    value_of(publisher.publish(state(0), 0));
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    while (!value_of(follower.catch_up()).expired) {
    }
    EXPECT_EQ(digest(*replica_), steps_.digest(0));
}

}  // namespace
}  // namespace wisp::testing
