// Sharded trainers: what the ranks put into the bucket is what one trainer would have.
#include <gtest/gtest.h>

#include "delta/delta_writer.hpp"
#include "doubles/memory_store.hpp"
#include "follow/object_fetcher.hpp"
#include "log/commit_log.hpp"
#include "publish/sharded/shard_manifest.hpp"
#include "simulated_ranks.hpp"
#include "wisp/follower.hpp"
#include "wisp/maintenance.hpp"

namespace wisp::testing {
namespace {

/// Takes what it is given and then stops answering.
class SilentStore : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    bool silent = false;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override {
        auto created = MemoryStore::create(key, bytes);
        if (silent) return fail(ErrorKind::kUnavailable, "no answer");
        return created;
    }
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        if (silent) return fail(ErrorKind::kUnavailable, "no answer");
        return MemoryStore::read(key, offset, into);
    }
};

class Sharded : public ::testing::Test {
  protected:
    Sharded() { value_of(init_run(run_, {})); }

    Checkpoint state(std::size_t i) const { return value_of(Checkpoint::open(steps_.state(i))); }
    Schema schema() const { return state(0).schema(); }

    ShardedPublisher open(std::uint64_t anchor_every = 0) {
        WriterOptions options;
        options.anchor_every = anchor_every;
        return value_of(ShardedPublisher::open(run_, folder_ / "rank0", options));
    }

    LogEntry head() const { return *value_of(value_of(CommitLog::open(run_, {})).head()); }

    Bytes fetched(const StoredFile& file) {
        ObjectFetcher fetcher(run_, folder_ / "fetched", 2);
        return read_bytes(value_of(fetcher.fetch(file)));
    }

    /// The delta of one trainer, with blocks of another size than diff() takes.
    Bytes unsharded(std::size_t from, std::size_t to, unsigned log2, Codec codec) {
        const Checkpoint before = state(from);
        const Checkpoint after = state(to);
        const fs::path path = folder_ / "unsharded";
        DeltaWriter writer = value_of(DeltaWriter::create(path, codec, before.schema(), log2));
        const BlockGrid grid(before.schema(), log2);
        const auto seeds = seeds_of(before.schema());
        WriteWorker worker;
        for (std::uint64_t b = 0; b < grid.count(); ++b) {
            const BlockRange range = grid[b];
            const auto old_block = range.of(before.bytes(range.tensor));
            worker.detector.detect(old_block, range.of(after.bytes(range.tensor)), range,
                                   seeds[range.tensor], false, worker.found);
            value_of(
                writer.add(range, writer.encode_changes(range, old_block, worker.found.changes,
                                                        nullptr, seeds[range.tensor], worker)));
        }
        value_of(writer.finish(steps_.digest(from), to));
        return read_bytes(path);
    }

    CheckpointSteps steps_{6};
    TempFolder folder_;
    std::shared_ptr<SilentStore> store_ = std::make_shared<SilentStore>(system_clock());
    Location run_{store_, "runs/a", "memory:a"};
};

TEST_F(Sharded, TheAssembledDeltaIsByteForByteThatOfOneTrainer) {
    for (const std::size_t ranks : {1, 2, 3, 5}) {
        for (const std::uint64_t inline_bytes : {0, 150, 1 << 20}) {
            run_.prefix = "runs/" + std::to_string(ranks) + "-" + std::to_string(inline_bytes);
            InitOptions starting;
            starting.codec = ranks % 2 == 0 ? Codec::kSwift : Codec::kCompact;
            value_of(init_run(run_, starting));
            ShardedPublisher publisher = open();
            SimulatedRanks trainer(run_, schema(), ranks, 6, inline_bytes, inline_bytes != 150);
            trainer.publish(publisher, state(0), 0);
            // After the first, ranks know which steps are dense.
            for (const std::uint64_t step : {1, 2}) {
                const PublishReport report = trainer.publish(publisher, state(step), step);
                EXPECT_EQ(report.state, steps_.digest(step));
                const LogEntry entry = head();
                ASSERT_TRUE(entry.commit.delta && entry.commit.delta->interleaved);
                EXPECT_TRUE(fetched(*entry.commit.delta) ==
                            unsharded(step - 1, step, 6, *starting.codec))
                    << ranks << " ranks, " << inline_bytes << " bytes inline, step " << step;
                const std::size_t parts = entry.commit.delta->parts.size();
                EXPECT_TRUE(inline_bytes != 0 || parts > ranks);
                EXPECT_TRUE(inline_bytes != 1 << 20 || parts == 1);
                EXPECT_EQ(trainer.changed_elements(), report.changed_elements);
            }
        }
    }
}

TEST_F(Sharded, WithTheUsualBlocksItIsTheFileThatDiffWrites) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 3, kLog2BlockElements);
    trainer.publish(publisher, state(0), 0);
    trainer.publish(publisher, state(1), 1);
    EXPECT_EQ(fetched(*head().commit.delta), read_bytes(steps_.delta(0, 1, kDefaultCodec)));
}

TEST_F(Sharded, AFollowerFollowsInterleavedAnchorsAndDeltas) {
    ShardedPublisher publisher = open(2);
    SimulatedRanks trainer(run_, schema(), 3, 6);
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    for (std::size_t i = 0; i < 6; ++i) {
        const PublishReport report = trainer.publish(publisher, state(i), i);
        EXPECT_EQ(report.kind_text(), i == 0 ? "anchor" : "delta");
        EXPECT_EQ(report.anchored, i % 2 == 0);
        EXPECT_TRUE(value_of(follower.catch_up()).moved);
        EXPECT_TRUE(steps_.holds(folder_ / "replica", i));
        auto late = value_of(open_memory_replica());
        Follower joiner = value_of(Follower::open(run_, *late, {}));
        EXPECT_TRUE(value_of(joiner.catch_up()).moved);
        EXPECT_EQ(value_of(digest_of(*late->weights())), steps_.digest(i));
    }
}

TEST_F(Sharded, MaintenanceWorksOverInterleavedObjects) {
    ShardedPublisher publisher = open(5);
    SimulatedRanks trainer(run_, schema(), 4, 6);
    for (std::size_t i = 0; i < 6; ++i) trainer.publish(publisher, state(i), i);
    MaintenanceOptions maintenance;
    EXPECT_TRUE(value_of(scrub_run(run_, maintenance, true)).findings.empty());
    value_of(export_step(run_, 4, folder_ / "exported", maintenance));
    EXPECT_TRUE(steps_.holds(folder_ / "exported", 4));
    value_of(compact_run(run_, maintenance));
    RetainOptions retain;
    retain.keep_anchors = 1;
    retain.grace = Milliseconds(0);
    value_of(retain_run(run_, retain));
    EXPECT_TRUE(value_of(scrub_run(run_, maintenance, true)).findings.empty());
    auto late = value_of(open_memory_replica());
    Follower joiner = value_of(Follower::open(run_, *late, {}));
    EXPECT_TRUE(value_of(joiner.catch_up()).moved);
    EXPECT_EQ(value_of(digest_of(*late->weights())), steps_.digest(5));
}

TEST_F(Sharded, AnotherNumberOfRanksGoesOnAndSoDoesOneTrainer) {
    std::size_t step = 0;
    for (const std::size_t ranks : {2, 3, 1}) {
        ShardedPublisher publisher = open();
        SimulatedRanks trainer(run_, schema(), ranks, 6);
        if (step > 0) trainer.adopt(state(step - 1));
        EXPECT_EQ(trainer.publish(publisher, state(step), step).kind_text(),
                  step == 0 ? "anchor" : "delta");
        ++step;
    }
    auto baseline = value_of(open_memory_replica());
    Publisher alone = value_of(Publisher::open(run_, *baseline, {}));
    EXPECT_EQ(value_of(alone.publish(state(step), step)).kind_text(), "delta");
}

TEST_F(Sharded, AStepThatWasNotCommittedLosesNothing) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 2, 6);
    trainer.publish(publisher, state(0), 0);
    const ShardCall lost = value_of(publisher.call(trainer.schema(), 1));
    (void)trainer.manifests(lost, state(1));  // and then a rank dies
    const PublishReport report = trainer.publish(publisher, state(2), 2);
    EXPECT_EQ(report.kind_text(), "delta");
    EXPECT_EQ(report.state, steps_.digest(2));
}

TEST_F(Sharded, ACommitWithoutAnAnswerIsFoundAtTheNextCall) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 2, 6);
    trainer.publish(publisher, state(0), 0);
    const ShardCall call = value_of(publisher.call(trainer.schema(), 1));
    const ShardManifests manifests = trainer.manifests(call, state(1));
    store_->silent = true;
    const auto report = publisher.commit(call, trainer.schema(), manifests);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::kUnavailable);
    EXPECT_EQ(publisher.result(), steps_.digest(1));
    EXPECT_FALSE(publisher.call(trainer.schema(), 2));
    store_->silent = false;
    const ShardCall next = value_of(publisher.call(trainer.schema(), 2));
    EXPECT_EQ(next.base, steps_.digest(1)) << "it had landed";
    trainer.advance(next.base);
    EXPECT_EQ(trainer.publish(publisher, state(2), 2).state, steps_.digest(2));
}

TEST_F(Sharded, GoingBackIsARewindAndTheSameStepAgainIsPresent) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 2, 6);
    for (std::size_t i = 0; i < 3; ++i) trainer.publish(publisher, state(i), i);
    EXPECT_EQ(trainer.publish(publisher, state(2), 2).kind_text(), "present");
    const PublishReport report = trainer.publish(publisher, state(3), 1);
    EXPECT_TRUE(report.rewound && report.anchored);
    EXPECT_EQ(head().commit.epoch, report.epoch);
    EXPECT_EQ(trainer.publish(publisher, state(4), 2).kind_text(), "delta");
}

TEST_F(Sharded, ARankWithOtherBlocksThanTheBaseIsNamed) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 3, 6);
    trainer.publish(publisher, state(0), 0);
    trainer.publish(publisher, state(1), 1);
    value_of(trainer.writer(2).adopt(state(0), steps_.digest(1)));
    const ShardCall call = value_of(publisher.call(trainer.schema(), 2));
    const auto report = publisher.commit(call, trainer.schema(), trainer.manifests(call, state(2)));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::kWrongBase);
    EXPECT_NE(report.error().text.find("rank 2"), std::string::npos) << report.error().text;
    trainer.adopt(state(1));
    EXPECT_EQ(trainer.publish(publisher, state(2), 2).state, steps_.digest(2));
}

TEST_F(Sharded, ANewerWriterFencesTheRanks) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 2, 6);
    trainer.publish(publisher, state(0), 0);
    auto baseline = value_of(open_memory_replica());
    Publisher other = value_of(Publisher::open(run_, *baseline, {}));
    value_of(other.publish(state(1), 1));
    const ShardCall call = value_of(publisher.call(trainer.schema(), 2));
    const auto report = publisher.commit(call, trainer.schema(), trainer.manifests(call, state(2)));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::kFenced);
}

TEST_F(Sharded, EveryBlockIsNeededOnce) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 2, 6);
    const ShardCall call = value_of(publisher.call(trainer.schema(), 0));
    ShardManifests manifests = trainer.manifests(call, state(0));
    const auto refused = [&](const ShardManifests& given) {
        const auto report = publisher.commit(call, trainer.schema(), given);
        return !report && report.error().kind == ErrorKind::kInvalid;
    };
    EXPECT_TRUE(refused({}));
    EXPECT_TRUE(refused({manifests[0]}));
    EXPECT_TRUE(refused({manifests[0], manifests[0]}));
    EXPECT_TRUE(refused({manifests[1], manifests[0]}));
    EXPECT_TRUE(refused({manifests[0], manifests[1], manifests[1]}));
    EXPECT_TRUE(publisher.commit(call, trainer.schema(), manifests));
}

TEST_F(Sharded, AShardManifestCutAnywhereOrOfAnotherCallIsRefused) {
    ShardedPublisher publisher = open();
    SimulatedRanks trainer(run_, schema(), 2, 6);
    trainer.publish(publisher, state(0), 0);
    const ShardCall call = value_of(publisher.call(trainer.schema(), 1));
    const auto manifest = trainer.manifests(call, state(1)).front();
    EXPECT_TRUE(parse_shard_manifest(manifest, trainer.schema(), call));
    for (std::size_t size = 0; size < manifest.size(); ++size) {
        EXPECT_FALSE(parse_shard_manifest(std::span(manifest).first(size), trainer.schema(), call))
            << size;
    }
    ShardCall other = call;
    ++other.step;
    EXPECT_FALSE(parse_shard_manifest(manifest, trainer.schema(), other));
    EXPECT_FALSE(parse_shard_manifest(manifest, value_of(Schema::make({})), call));
    ShardManifest forged = value_of(parse_shard_manifest(manifest, trainer.schema(), call));
    ASSERT_FALSE(forged.parts.empty());
    forged.parts.front().key = "anchors/step_000000-e1-0000000000000000.safetensors";
    EXPECT_FALSE(parse_shard_manifest(write_shard_manifest(forged), trainer.schema(), call));
}

}  // namespace
}  // namespace wisp::testing
