// What people are told of a run: commits and their chain, deltas from their directories, exponents.
#include "wisp/history.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/bytes.hpp"
#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "log/run_keys.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"

namespace wisp::testing {
namespace {

/// Counts what is asked of it, and may say that this costs.
class CountedStore : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    std::atomic<bool> few_requests = false;

    StoreTerms terms() const override {
        StoreTerms terms;
        terms.few_requests = few_requests;
        return terms;
    }
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        count(key);
        return MemoryStore::read(key, offset, into);
    }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        count(prefix);
        return MemoryStore::list(prefix, after, limit);
    }
    std::map<std::string, int> take_counts() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(counts_, {});
    }

  private:
    void count(const std::string& asked) {
        const std::scoped_lock lock(mutex_);
        ++counts_[asked];
    }
    std::mutex mutex_;
    std::map<std::string, int> counts_;
};

class HistoryOfARun : public ::testing::Test {
  protected:
    HistoryOfARun() {
        value_of(init_run(run_, {}));
        for (std::size_t i = 0; i < 4; ++i) publish(i);
    }
    void publish(std::size_t i) {
        if (!publisher_) publisher_ = value_of(Publisher::open(run_, *baseline_, {}));
        value_of(publisher_->publish(value_of(Checkpoint::open(steps_.state(i))), i));
    }
    std::vector<HistoryEntry> lines(std::uint64_t after = 0, std::uint64_t count = 100) {
        return value_of(read_history(run_, after, count, {})).commits;
    }
    std::uint64_t seq_of_step(std::uint64_t step) {
        for (const HistoryEntry& line : lines()) {
            if (line.commit.step == step && line.commit.delta_bytes != 0) return line.commit.seq;
        }
        return 0;
    }

    CheckpointSteps steps_{6};
    TempFolder folder_;
    std::shared_ptr<CountedStore> store_ = std::make_shared<CountedStore>(system_clock());
    Location run_{store_, "runs/a", "memory:a"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::optional<Publisher> publisher_;
};

TEST_F(HistoryOfARun, IsTheLogWithItsChain) {
    const auto log = value_of(read_log(run_, 100, {}));
    const auto all = lines();
    ASSERT_EQ(all.size(), log.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].commit.hash, log[log.size() - 1 - i].hash);
        EXPECT_EQ(all[i].previous, i == 0 ? "" : all[i - 1].commit.hash);
        EXPECT_EQ(all[i].signature, Signer::How::kUnsigned);
    }
    EXPECT_FALSE(all.front().makes_state);
    EXPECT_TRUE(all.back().makes_state);
    EXPECT_EQ(lines(0, 2).front().commit.seq, all.back().commit.seq - 1);
}

TEST_F(HistoryOfARun, GoesOnWhereTheReaderStopped) {
    const std::uint64_t known = lines().back().commit.seq;
    EXPECT_TRUE(lines(known).empty());
    EXPECT_EQ(value_of(read_history(run_, known, 100, {})).head_seq, known);
    publish(4);
    const auto fresh = lines(known);
    ASSERT_FALSE(fresh.empty());
    EXPECT_EQ(fresh.front().commit.seq, known + 1);
}

TEST_F(HistoryOfARun, HoldsEveryCommitHoweverManyVoidSlotsLieBetween) {
    const SigningKey key = value_of(SigningKey::generate());
    InitOptions starting;
    starting.signer = RunSigner{key, std::nullopt};
    PublishOptions signing;
    signing.signer = starting.signer;
    run_.prefix = "runs/signed";
    value_of(init_run(run_, starting));
    const auto baseline = value_of(open_memory_replica());
    Publisher publisher = value_of(Publisher::open(run_, *baseline, signing));
    for (std::size_t i = 0; i < 4; ++i) {
        value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(i))), i));
        // Somebody who can write to the bucket, and has no key.
        const std::uint64_t head = value_of(read_log(run_, 1, {})).at(0).seq;
        for (std::uint64_t seq = head + 1; i < 3 && seq <= head + 70; ++seq) {
            value_of(store_->put(run_.key(commit_key(seq)), as_bytes("junk")));
        }
    }
    const auto log = value_of(read_log(run_, 4, {}));
    ASSERT_EQ(log.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(log[i].step, 3 - i);
    EXPECT_GT(log[0].seq, log[1].seq + 70);
    EXPECT_EQ(value_of(read_log(run_, 1000, {})).size(), 5U) << "the fence, too, and no more";
}

TEST_F(HistoryOfARun, IsLookedAtOnceWhereRequestsAreCounted) {
    store_->few_requests = true;
    store_->take_counts();
    value_of(read_status(run_, {}));
    const auto counts = store_->take_counts();
    EXPECT_EQ(counts.at("runs/a/latest"), 1);
    EXPECT_EQ(counts.at("runs/a/replicas/"), 1);
}

TEST_F(HistoryOfARun, KnowsTheFullBytes) {
    const History history = value_of(read_history(run_, 0, 100, {}));
    const auto status = value_of(read_status(run_, {}));
    EXPECT_EQ(history.full_bytes, status.anchors.back().bytes);
}

TEST_F(HistoryOfARun, IsEmptyBeforeTheFirstCommit) {
    const Location fresh{store_, "runs/b", "memory:b"};
    value_of(init_run(fresh, {}));
    EXPECT_EQ(value_of(read_history(fresh, 0, 100, {})).head_seq, 0U);
    EXPECT_EQ(read_history({store_, "runs/c", "memory:c"}, 0, 100, {}).error().kind,
              ErrorKind::kNoRun);
}

TEST_F(HistoryOfARun, ASurveySaysWhatTheWholeDeltaSays) {
    const std::uint64_t seq = seq_of_step(2);
    const FileReport whole = value_of(inspect_commit(run_, seq, {}));
    const FileReport survey = value_of(survey_commit(run_, seq, {}));
    ASSERT_EQ(survey.tensors.size(), whole.tensors.size());
    for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
        EXPECT_EQ(survey.tensors[i].tensor, whole.tensors[i].tensor);
        EXPECT_EQ(survey.tensors[i].element_count, whole.tensors[i].element_count);
        EXPECT_EQ(survey.tensors[i].changed_elements, whole.tensors[i].changed_elements);
        EXPECT_EQ(survey.tensors[i].stored_bytes, whole.tensors[i].stored_bytes);
    }
    EXPECT_EQ(survey.changed_elements, whole.changed_elements);
    EXPECT_EQ(survey.payload_bytes, whole.payload_bytes);
    EXPECT_EQ(survey.base, whole.base);
    EXPECT_EQ(survey.result, whole.result);
    EXPECT_EQ(survey_commit(run_, 1, {}).error().kind, ErrorKind::kNotFound);
}

TEST_F(HistoryOfARun, ADamagedDirectoryIsRefused) {
    const auto objects = value_of(store_->list(run_.key("deltas/"), "", 10));
    const std::string key = objects.back().key;
    auto bytes = value_of(read_whole(*store_, key, 1 << 20));
    for (std::size_t i = bytes.size() - 40; i < bytes.size(); ++i) bytes[i] = std::byte{0xEE};
    value_of(store_->put(key, bytes));
    EXPECT_EQ(survey_commit(run_, seq_of_step(3), {}).error().kind, ErrorKind::kCorrupt);
    bytes.resize(bytes.size() / 2);
    value_of(store_->put(key, bytes));
    EXPECT_EQ(survey_commit(run_, seq_of_step(3), {}).error().kind, ErrorKind::kCorrupt);
}

/// By hand: the small model's floating-point elements are bf16 and f32, whose exponents are alike.
std::map<int, BinadeCount> counted(const std::vector<Tensor>& before,
                                   const std::vector<Tensor>& after) {
    std::map<int, BinadeCount> counts;
    for (std::size_t t = 0; t < before.size(); ++t) {
        const Dtype dtype = before[t].info.dtype;
        if (dtype != Dtype::kBf16 && dtype != Dtype::kF32) continue;
        const std::size_t width = dtype == Dtype::kBf16 ? 2 : 4;
        for (std::size_t at = 0; at < before[t].bytes.size(); at += width) {
            const std::byte* old = before[t].bytes.data() + at;
            const auto high = static_cast<unsigned>(load_le<std::uint16_t>(old + width - 2));
            const int binade = static_cast<int>(high >> 7 & 255) - 127;
            counts[binade].binade = binade;
            ++counts[binade].elements;
            if (!std::equal(old, old + width, after[t].bytes.data() + at)) {
                ++counts[binade].changed;
            }
        }
    }
    return counts;
}

TEST_F(HistoryOfARun, ExponentsAreCountedForwardAndBack) {
    ExponentCounter counter = value_of(ExponentCounter::open(run_, folder_.path(), {}, 2));
    for (const std::size_t step : {1U, 3U, 2U}) {
        auto expected = counted(steps_.tensors(step - 1), steps_.tensors(step));
        const auto found = value_of(counter.count(seq_of_step(step)));
        ASSERT_EQ(found.size(), expected.size());
        for (const BinadeCount& count : found) {
            EXPECT_EQ(count.elements, expected[count.binade].elements);
            EXPECT_EQ(count.changed, expected[count.binade].changed);
        }
    }
    EXPECT_EQ(counter.count(1).error().kind, ErrorKind::kNotFound);
}

TEST_F(HistoryOfARun, ReplicasTellTheirPauseAndHowOftenTheyAreHeard) {
    auto replica = value_of(open_memory_replica());
    FollowOptions options;
    options.replica_id = "one";
    options.heartbeat = Milliseconds(5'000);
    Follower follower = value_of(Follower::open(run_, *replica, options));
    value_of(follower.catch_up());
    const auto replicas = value_of(read_replicas(run_, {}));
    ASSERT_EQ(replicas.size(), 1U);
    EXPECT_EQ(replicas[0].summary.id, "one");
    EXPECT_EQ(replicas[0].summary.step, 3U);
    EXPECT_EQ(replicas[0].every_ms, 5'000);
    ASSERT_TRUE(replicas[0].pause_us);
}

TEST_F(HistoryOfARun, AProcessMayTellOfReplicasThatOthersHold) {
    value_of(
        tell_replica(run_, {}, {"east", seq_of_step(2), ReplicaStatus::kFollowing, 1'500, 30'000}));
    value_of(tell_replica(run_, {}, {"west", 0, ReplicaStatus::kJoining}));
    const auto replicas = value_of(read_replicas(run_, {}));
    ASSERT_EQ(replicas.size(), 2U);
    EXPECT_EQ(replicas[0].summary.id, "east");
    EXPECT_EQ(replicas[0].summary.step, 2U);
    EXPECT_EQ(replicas[0].summary.lag_steps, 1U);
    EXPECT_EQ(replicas[0].pause_us, 1'500);
    EXPECT_EQ(replicas[1].summary.status, ReplicaStatus::kJoining);
    EXPECT_EQ(replicas[1].summary.lag_steps, 4U);
    for (const std::string id : {"", "../latest", "a/b", ".", "a b"}) {
        EXPECT_EQ(tell_replica(run_, {}, {id, 0}).error().kind, ErrorKind::kInvalid);
    }
    EXPECT_EQ(tell_replica(run_, {}, {"east", 999}).error().kind, ErrorKind::kGap);
}

}  // namespace
}  // namespace wisp::testing
