// Whose word counts in a run, and for how long: certificates that end, keyless writers in its
// slots, commits that are gone, replicas whose label must be their weights.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "log/commit.hpp"
#include "log/commit_log.hpp"
#include "log/run_keys.hpp"
#include "manual_clock.hpp"
#include "wisp/follower.hpp"
#include "wisp/history.hpp"
#include "wisp/maintenance.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_watch.hpp"

namespace wisp::testing {
namespace {

constexpr Milliseconds kDay(24 * 3'600'000);

/// Something happens just before it lists, once.
class InterruptedStore : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        if (prefix.ends_with(interrupted_at)) {
            if (const auto happens = std::exchange(meanwhile, {})) happens();
        }
        return MemoryStore::list(prefix, after, limit);
    }
    std::string interrupted_at;
    std::function<void()> meanwhile;
};

class JudgedHistory : public ::testing::Test {
  protected:
    /// A run under a root that certifies the trainer's key.
    void start_signed() {
        InitOptions options;
        options.run = at_clock();
        options.roots = {root_.public_key()};
        value_of(init_run(run_, options));
        certify(1, kDay * 30);
    }
    void start_unsigned() {
        InitOptions options;
        options.run = at_clock();
        value_of(init_run(run_, options));
    }
    void certify(std::uint64_t serial, Milliseconds lasting) {
        signer_ =
            RunSigner{trainer_, value_of(Certificate::make(root_, trainer_.public_key(), serial,
                                                           clock_->now_ms() + lasting.count()))};
    }
    RunOptions at_clock() const {
        RunOptions options;
        options.clock = clock_;
        return options;
    }
    PublishOptions publishing() const {
        PublishOptions options;
        options.run = at_clock();
        options.signer = signer_;
        options.anchor_every = 1000;
        return options;
    }
    FollowOptions trusting() const {
        FollowOptions options;
        options.run = at_clock();
        options.run.trust.keys = {root_.public_key()};
        return options;
    }
    MaintenanceOptions maintenance() const {
        MaintenanceOptions options;
        options.run = at_clock();
        options.signer = signer_;
        return options;
    }
    Checkpoint state(std::size_t i) { return value_of(Checkpoint::open(steps_.state(i))); }
    Publisher open_publisher() { return value_of(Publisher::open(run_, *baseline_, publishing())); }
    void publish(std::size_t first, std::size_t end) {
        Publisher publisher = open_publisher();
        for (std::size_t i = first; i < end; ++i) value_of(publisher.publish(state(i), i));
    }
    Follower follow(Replica& replica) {
        return value_of(Follower::open(run_, replica, trusting()));
    }
    std::uint64_t head_seq() { return value_of(read_log(run_, 1, at_clock())).at(0).seq; }
    StateDigest digest(const Replica& replica) { return value_of(digest_of(*replica.weights())); }
    std::string slot(std::uint64_t seq) const { return run_.key(commit_key(seq)); }
    std::string text_at(std::uint64_t seq) {
        const auto bytes = value_of(read_whole(*store_, slot(seq), 1 << 20));
        return std::string(as_text(bytes));
    }
    void put(std::uint64_t seq, const std::string& text) {
        value_of(store_->put(slot(seq), as_bytes(text)));
    }
    /// What a writer without keys makes of the head: a commit that builds on it, unsigned.
    Commit forged_after(std::uint64_t seq, CommitKind kind) {
        const std::string before = text_at(seq);
        Commit commit = value_of(parse_commit(before, "it")).commit;
        commit.previous = {seq, to_hex(sha256(as_bytes(before)))};
        commit.ancestors.clear();
        commit.manifest_at =
            commit.manifest ? CommitRef{seq, commit.previous.hash} : commit.manifest_at;
        commit.manifest.reset();
        commit.base.reset();
        commit.delta.reset();
        commit.rewind_from.reset();
        commit.seq = seq + 1;
        commit.kind = kind;
        return commit;
    }

    CheckpointSteps steps_{8};
    TempFolder folder_;
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<InterruptedStore> store_ = std::make_shared<InterruptedStore>(clock_);
    Location run_{store_, "runs/a", "memory:a"};
    SigningKey root_ = value_of(SigningKey::generate());
    SigningKey trainer_ = value_of(SigningKey::generate());
    std::optional<RunSigner> signer_;
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::unique_ptr<Replica> replica_ = value_of(open_memory_replica());
};

// F2: certificates.

TEST_F(JudgedHistory, AReplicaThatSleptPastTheEndOfARenewedCertificateGoesOn) {
    start_signed();
    publish(0, 2);
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    publish(2, 4);
    certify(2, kDay * 60);
    publish(4, 6);
    clock_->advance(kDay * 31);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(5));
    auto late = value_of(open_memory_replica());
    Follower joining = follow(*late);
    value_of(joining.catch_up());
    EXPECT_EQ(digest(*late), steps_.digest(5));
}

TEST_F(JudgedHistory, AnOrdinaryRenewalRevokesNobodyWhoIsAFewStepsBehind) {
    start_signed();
    publish(0, 1);
    auto folder = value_of(open_folder_replica(folder_ / "replica"));
    {
        Follower follower = follow(*folder);
        value_of(follower.catch_up());
    }
    publish(1, 5);
    certify(2, kDay * 60);
    publish(5, 8);
    for (int restart = 0; restart < 2; ++restart) {
        Follower follower = follow(*folder);
        value_of(follower.catch_up());
        EXPECT_EQ(follower.at().certificate_serial, 2U);
    }
    EXPECT_TRUE(steps_.holds(folder_ / "replica", 7));
}

TEST_F(JudgedHistory, AHintAtACommitThatHasLapsedIsOnlyAHint) {
    start_signed();
    publish(0, 2);
    const auto hint = value_of(read_whole(*store_, run_.key(kLatestKey), 1024));
    clock_->advance(kDay * 29);
    certify(2, kDay * 60);
    publish(2, 4);
    clock_->advance(kDay * 2);
    value_of(store_->put(run_.key(kLatestKey), hint));
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(3));
}

TEST_F(JudgedHistory, ATrainerReopensItsRunAfterItsCertificateEndedAndWasRenewed) {
    start_signed();
    MemoryReplicaOptions kept;
    kept.scratch = folder_ / "scratch";
    for (const bool same_writer : {false, true}) {
        baseline_ = value_of(same_writer ? open_memory_replica(kept) : open_memory_replica());
        certify(same_writer ? 3 : 1, kDay);
        publish(0, 2);
        clock_->advance(kDay * 2);
        auto late = value_of(open_memory_replica());
        Follower refused = follow(*late);
        EXPECT_EQ(outcome_of(refused.catch_up()), "denied") << "nothing vouches for it now";
        certify(same_writer ? 4 : 2, kDay);
        PublishOptions narrow = publishing();
        narrow.run.trust.keys = {root_.public_key()};
        {
            baseline_.reset();
            baseline_ = value_of(same_writer ? open_memory_replica(kept) : open_memory_replica());
            Publisher again = value_of(Publisher::open(run_, *baseline_, narrow));
            value_of(refused.catch_up());
            EXPECT_EQ(digest(*late), steps_.digest(1)) << "vouched for again, before any step";
            value_of(again.publish(state(2), 2));
        }
        value_of(refused.catch_up());
        EXPECT_EQ(digest(*late), steps_.digest(2));
    }
}

TEST_F(JudgedHistory, NothingIsSignedUnderACertificateThatHasEnded) {
    start_signed();
    Publisher publisher = open_publisher();
    value_of(publisher.publish(state(0), 0));
    const std::uint64_t head = head_seq();
    clock_->advance(kDay * 31);
    const auto refused = publisher.publish(state(1), 1);
    EXPECT_EQ(outcome_of(refused), "denied");
    EXPECT_NE(text_of(refused).find("expired"), std::string::npos) << text_of(refused);
    EXPECT_EQ(outcome_of(store_->head(slot(head + 1))), "not_found");
}

TEST_F(JudgedHistory, ASerialBelowTheRunsIsRefusedToItsWriter) {
    start_signed();
    certify(5, kDay);
    publish(0, 1);
    certify(4, kDay);
    auto other = value_of(open_memory_replica());
    const auto refused = Publisher::open(run_, *other, publishing());
    EXPECT_EQ(outcome_of(refused), "denied");
    EXPECT_NE(text_of(refused).find("at least 5"), std::string::npos) << text_of(refused);
}

TEST_F(JudgedHistory, AReplacedKeyThatHasNotEndedYetMovesNobody) {
    start_signed();
    publish(0, 2);
    const std::optional<RunSigner> stolen = signer_;
    trainer_ = value_of(SigningKey::generate());
    certify(2, kDay * 30);
    publish(2, 3);
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    // The thief appends behind the head, building on it and on an older commit of his own time.
    const std::uint64_t head = head_seq();
    for (const std::uint64_t base : {head, head - 2}) {
        Commit commit = forged_after(base, CommitKind::kHeartbeat);
        commit.seq = head + 1;
        std::string text = write_commit(commit);
        text += value_of(
            write_signature_block(stolen->key, stolen->certificate, "commit", as_bytes(text)));
        put(head + 1, text);
        value_of(follower.catch_up());
        EXPECT_EQ(follower.at().seq, head);
        auto late = value_of(open_memory_replica());
        Follower joining = follow(*late);
        value_of(joining.catch_up());
        EXPECT_EQ(joining.at().seq, head);
    }
    publish(3, 4);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(3));
}

// F3: the chain below the head.

TEST_F(JudgedHistory, ACommitBelowTheHeadThatWasRewrittenIsNoticed) {
    start_signed();
    publish(0, 4);
    // The one that carries the map, signed again with the stolen key, whose certificate has ended.
    std::uint64_t at = 0;
    Commit rewritten;
    for (std::uint64_t seq = 1; seq <= head_seq(); ++seq) {
        const Commit commit = value_of(parse_commit(text_at(seq), "it")).commit;
        if (commit.manifest) rewritten = commit, at = seq;
    }
    ASSERT_NE(at, 0U);
    const auto config = as_bytes("{\"forged\":true}");
    const std::string hash = to_hex(sha256(config));
    const std::string key = "anchors/step_000000-e1-" + hash.substr(0, 16) + ".file";
    value_of(store_->put(run_.key(key), config));
    rewritten.manifest->anchors[0].files.push_back(
        {"config.json", "", {{key, config.size(), hash}}});
    std::string text = write_commit(rewritten);
    text += value_of(
        write_signature_block(signer_->key, signer_->certificate, "commit", as_bytes(text)));
    certify(2, kDay * 60);
    publish(4, 5);
    put(at, text);
    clock_->advance(kDay * 31);
    Follower follower = follow(*replica_);
    EXPECT_EQ(outcome_of(follower.catch_up()), "forked");
    EXPECT_EQ(outcome_of(export_step(run_, 3, folder_ / "out", maintenance())), "forked");
    EXPECT_EQ(outcome_of(read_status(run_, at_clock())), "forked");
    EXPECT_EQ(outcome_of(compact_run(run_, maintenance())), "forked");
}

// F4 to F6: a writer without keys.

TEST_F(JudgedHistory, WhatAKeylessWriterPutsIntoSlotsIsSteppedOverByAll) {
    start_signed();
    Publisher publisher = open_publisher();
    value_of(publisher.publish(state(0), 0));
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    const std::string run = value_of(read_status(run_, at_clock())).run;
    std::size_t step = 1;
    const auto attack = [&](const std::function<std::string(std::uint64_t)>& object) {
        const std::uint64_t head = head_seq();
        put(head + 1, object(head));
        EXPECT_EQ(head_seq(), head);
        EXPECT_EQ(outcome_of(follower.catch_up()), "ok");
        EXPECT_EQ(value_of(read_status(run_, at_clock())).head->seq, head);
        value_of(publisher.publish(state(step), step));
        EXPECT_GE(head_seq(), head + 2);
        value_of(follower.catch_up());
        EXPECT_EQ(digest(*replica_), steps_.digest(step));
        ++step;
    };
    attack([&](std::uint64_t head) {
        Commit commit = forged_after(head, CommitKind::kMerge);
        commit.manifest.emplace();
        commit.manifest_at = {};
        return write_commit(commit);
    });
    attack([&](std::uint64_t head) {
        Commit commit = forged_after(head, CommitKind::kFence);
        ++commit.epoch;
        commit.owner = std::string(32, 'e');
        return write_commit(commit);
    });
    attack([&](std::uint64_t head) { return write_tombstone({run, head + 1, head + 1}); });
    attack([&](std::uint64_t head) { return write_tombstone({run, head + 1, head + 1000}); });
    attack([](std::uint64_t) { return std::string("garbage"); });
    attack([](std::uint64_t) { return std::string(2 << 20, 'x'); });
    attack([&](std::uint64_t head) { return text_at(head); });
    const ScrubReport scrubbed = value_of(scrub_run(run_, maintenance(), true));
    EXPECT_EQ(scrubbed.findings.size(), 7U) << "each is named";
    auto late = value_of(open_memory_replica());
    Follower joining = follow(*late);
    value_of(joining.catch_up());
    EXPECT_EQ(digest(*late), steps_.digest(7));
}

TEST_F(JudgedHistory, AForgedMergeIsNotSignedByWhoeverComesNext) {
    start_signed();
    publish(0, 3);
    const std::uint64_t head = head_seq();
    Commit forged = forged_after(head, CommitKind::kMerge);
    forged.manifest.emplace();
    forged.manifest_at = {};
    put(head + 1, write_commit(forged));
    RetainOptions options;
    options.maintenance = maintenance();
    options.grace = Milliseconds(0);
    value_of(retain_run(run_, options));
    publish(3, 4);
    EXPECT_FALSE(value_of(read_status(run_, at_clock())).anchors.empty());
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(3));
}

TEST_F(JudgedHistory, NothingUnsignedIsAppendedToASignedRun) {
    start_signed();
    publish(0, 6);
    const std::uint64_t head = head_seq();
    MaintenanceOptions keyless = maintenance();
    keyless.signer.reset();
    EXPECT_EQ(outcome_of(compact_run(run_, keyless)), "denied");
    RetainOptions retaining;
    retaining.maintenance = keyless;
    retaining.grace = Milliseconds(0);
    signer_.reset();
    auto other = value_of(open_memory_replica());
    EXPECT_EQ(outcome_of(Publisher::open(run_, *other, publishing())), "denied");
    signer_ = RunSigner{value_of(SigningKey::generate()), std::nullopt};
    EXPECT_EQ(outcome_of(Publisher::open(run_, *other, publishing())), "denied");
    EXPECT_EQ(head_seq(), head);
}

TEST_F(JudgedHistory, SigningInARunWithoutKeysIsRefused) {
    start_unsigned();
    certify(1, kDay);
    EXPECT_EQ(outcome_of(Publisher::open(run_, *baseline_, publishing())), "invalid");
    EXPECT_EQ(outcome_of(Follower::open(run_, *replica_, trusting())), "denied");
}

TEST_F(JudgedHistory, ATombstoneAfterTheHeadOfAnUnsignedRunStopsNobody) {
    start_unsigned();
    Publisher publisher = open_publisher();
    value_of(publisher.publish(state(0), 0));
    const std::string run = value_of(read_status(run_, at_clock())).run;
    const std::uint64_t head = head_seq();
    put(head + 1, write_tombstone({run, head + 1, head + 1}));
    EXPECT_EQ(head_seq(), head);
    FollowOptions options;
    options.run = at_clock();
    Follower follower = value_of(Follower::open(run_, *replica_, options));
    value_of(follower.catch_up());
    value_of(publisher.publish(state(1), 1));
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(1));
}

// F1, and a commit that was deleted from the middle of the log.

TEST_F(JudgedHistory, RetentionRemovesNothingWhileACommitIsMissing) {
    start_unsigned();
    publish(0, 8);
    clock_->advance(kDay * 3);
    const std::size_t before = value_of(store_->list("", "", 1000)).size();
    const std::uint64_t gone = head_seq() - 3;
    const std::string text = text_at(gone);
    value_of(store_->remove(slot(gone)));
    RetainOptions options;
    options.maintenance = maintenance();
    options.grace = Milliseconds(0);
    const auto refused = retain_run(run_, options);
    EXPECT_EQ(outcome_of(refused), "gap") << text_of(refused);
    EXPECT_EQ(value_of(store_->list("", "", 1000)).size(), before - 1);
    put(gone, text);
    value_of(retain_run(run_, options));
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(value_of(export_step(run_, i, folder_ / std::to_string(i), maintenance())).state,
                  steps_.digest(i));
    }
}

TEST_F(JudgedHistory, AHoleInTheLogIsAGapForEveryVerb) {
    start_unsigned();
    publish(0, 2);
    FollowOptions options;
    options.run = at_clock();
    Follower follower = value_of(Follower::open(run_, *replica_, options));
    value_of(follower.catch_up());
    const std::uint64_t gone = head_seq() + 1;
    publish(2, 8);
    const std::string lost = text_at(gone);
    value_of(store_->remove(slot(gone)));
    const auto report = follower.catch_up();
    EXPECT_EQ(outcome_of(report), "gap") << "not 'nothing new'";
    EXPECT_EQ(digest(*replica_), steps_.digest(1));
    EXPECT_EQ(outcome_of(read_log(run_, 100, at_clock())), "gap");
    EXPECT_EQ(outcome_of(read_history(run_, 0, 100, at_clock())), "gap");
    EXPECT_EQ(outcome_of(export_step(run_, 6, folder_ / "out", maintenance())), "gap");
    EXPECT_EQ(outcome_of(compact_run(run_, maintenance())), "gap");
    EXPECT_FALSE(value_of(scrub_run(run_, maintenance(), false)).findings.empty());
    put(gone, lost);
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(7));
}

TEST_F(JudgedHistory, AReplicaGoesAroundAHoleWhenAnAnchorLiesBehindIt) {
    start_unsigned();
    PublishOptions anchoring = publishing();
    anchoring.anchor_every = 4;
    Publisher publisher = value_of(Publisher::open(run_, *baseline_, anchoring));
    FollowOptions options;
    options.run = at_clock();
    Follower follower = value_of(Follower::open(run_, *replica_, options));
    std::uint64_t gone = 0;
    for (std::size_t i = 0; i < 24; ++i) {
        value_of(publisher.publish(state(i % 8), i));
        // Inside a stretch of sixteen slots, whose later commits know what lies before it.
        if (i == 16) value_of(follower.catch_up());
        if (i == 16) gone = head_seq() + 1;
    }
    ASSERT_NE(gone / 16, 0U);
    ASSERT_EQ(gone / 16, (gone + 1) / 16);
    value_of(store_->remove(slot(gone)));
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().step, 23U);
}

// F7: a label is its weights.

TEST_F(JudgedHistory, ABoundedReplicaKeepsTheLabelOfItsWeightsAndMovesOnWithoutTheBound) {
    start_unsigned();
    Publisher publisher = open_publisher();
    for (std::size_t i = 0; i < 6; ++i) value_of(publisher.publish(state(i), i));
    FollowOptions free;
    free.run = at_clock();
    {
        auto replica = value_of(open_folder_replica(folder_ / "replica"));
        Follower follower = value_of(Follower::open(run_, *replica, free));
        value_of(follower.catch_up());
    }
    // Rebuilt at an older step: the mark stays where it was.
    const fs::path weights = folder_ / "replica" / "model.safetensors";
    fs::resize_file(weights, fs::file_size(weights) - 2);
    FollowOptions bounded = free;
    bounded.until_step = 3;
    auto replica = value_of(open_folder_replica(folder_ / "replica"));
    {
        Follower follower = value_of(Follower::open(run_, *replica, bounded));
        value_of(follower.catch_up());
        EXPECT_EQ(follower.at().step, 3U);
    }
    value_of(publisher.heartbeat());
    {
        Follower follower = value_of(Follower::open(run_, *replica, bounded));
        value_of(follower.catch_up());
        EXPECT_EQ(follower.at().step, 3U);
        EXPECT_EQ(follower.at().state, steps_.digest(3));
        EXPECT_EQ(digest(*replica), steps_.digest(3));
    }
    Follower follower = value_of(Follower::open(run_, *replica, free));
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().step, 5U);
    EXPECT_EQ(digest(*replica), steps_.digest(5));
}

// What happens between two looks at the log.

TEST_F(JudgedHistory, RetentionThatSleptSinceItReadTheLogSweepsNothingNew) {
    start_unsigned();
    Publisher publisher = open_publisher();
    for (std::size_t i = 0; i < 3; ++i) value_of(publisher.publish(state(i), i));
    store_->interrupted_at = kDeltasPrefix;
    store_->meanwhile = [&] {
        value_of(publisher.publish(state(3), 3));
        clock_->advance(kDay * 2);
    };
    RetainOptions options;
    options.maintenance = maintenance();
    EXPECT_EQ(value_of(retain_run(run_, options)).removed_objects, 0U);
    FollowOptions free;
    free.run = at_clock();
    Follower follower = value_of(Follower::open(run_, *replica_, free));
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(3));
}

TEST_F(JudgedHistory, ALogThatGrowsWhileAWriterLooksForItsEndHasNoHole) {
    start_unsigned();
    Publisher publisher = open_publisher();
    value_of(publisher.publish(state(0), 0));
    store_->interrupted_at = kCommitsPrefix;
    store_->meanwhile = [&] {
        value_of(publisher.publish(state(1), 1));
        value_of(publisher.publish(state(2), 2));
    };
    auto other = value_of(open_memory_replica());
    const Publisher second = value_of(Publisher::open(run_, *other, publishing()));
    EXPECT_EQ(second.at().state, steps_.digest(2));
}

TEST_F(JudgedHistory, MaintenanceTakesNoHoleForTheEndWhenTheHintIsOfNoUse) {
    start_unsigned();
    publish(0, 6);
    const std::uint64_t head = head_seq();
    value_of(store_->remove(slot(3)));
    value_of(store_->put(run_.key(kLatestKey), as_bytes("x")));
    RetainOptions options;
    options.maintenance = maintenance();
    clock_->advance(kDay * 2);
    EXPECT_EQ(outcome_of(retain_run(run_, options)), "gap");
    EXPECT_EQ(outcome_of(compact_run(run_, maintenance())), "gap");
    EXPECT_EQ(outcome_of(store_->head(slot(3))), "not_found");
    EXPECT_EQ(outcome_of(store_->head(slot(head))), "ok");
}

// F12: first contact.

TEST_F(JudgedHistory, APinnedRunIsNotTakenForAnother) {
    start_signed();
    publish(0, 1);
    FollowOptions pinned = trusting();
    pinned.run.expected_run = value_of(read_status(run_, at_clock())).run;
    value_of(Follower::open(run_, *replica_, pinned));
    const Location other{store_, "runs/b", "memory:b"};
    InitOptions options;
    options.run = at_clock();
    options.roots = {root_.public_key()};
    value_of(init_run(other, options));
    EXPECT_EQ(outcome_of(Follower::open(other, *replica_, pinned)), "forked");
}

TEST_F(JudgedHistory, SignedRunsExpireByThemselvesAndHeartbeatsMoveThatOn) {
    start_signed();
    Publisher publisher = open_publisher();
    value_of(publisher.publish(state(0), 0));
    Follower follower = follow(*replica_);
    EXPECT_FALSE(value_of(follower.catch_up()).expired);
    clock_->advance(kDay + Milliseconds(1));
    EXPECT_TRUE(value_of(follower.catch_up()).expired);
    value_of(publisher.heartbeat());
    EXPECT_FALSE(value_of(follower.catch_up()).expired);
    clock_->advance(kDay * 30);
    EXPECT_TRUE(value_of(follower.catch_up()).expired);
}

}  // namespace
}  // namespace wisp::testing
