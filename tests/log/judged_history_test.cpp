// Keyless writers in a run's slots, commits that were rewritten, replicas whose label must be their
// weights.
#include "log/judged_history.hpp"
#include "base/limits.hpp"
#include "log/commit_log.hpp"
#include "wisp/run_status.hpp"

namespace wisp::testing {
namespace {

// F3: the chain below the head.

TEST_F(JudgedHistory, ACommitBelowTheHeadThatWasRewrittenIsNoticed) {
    start_signed();
    publish(0, 4);
    // The one with the manifest, signed again with the stolen key, whose certificate has ended.
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
    RetainOptions retaining;
    retaining.maintenance = maintenance();
    EXPECT_EQ(outcome_of(retain_run(run_, retaining)), "forked");
    EXPECT_EQ(outcome_of(branch(3)), "forked");
    EXPECT_EQ(outcome_of(read_log(run_, 100, at_clock())), "forked");
    EXPECT_EQ(outcome_of(read_history(run_, 0, 100, at_clock())), "forked");
    auto other = value_of(open_memory_replica());
    EXPECT_EQ(outcome_of(Publisher::open(run_, *other, publishing())), "forked");
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

TEST_F(JudgedHistory, RepliesThatAreWrongEachInItsOwnWayMakeNoCommitVoid) {
    start_signed();
    publish(0, 2);
    const std::uint64_t newest = head_seq();
    const CommitLog log = value_of(CommitLog::open(run_, at_clock()));
    store_->interrupted_at = slot(newest);
    // A cut one, then one that has no end, however much room there is for it.
    store_->replies = {text_at(newest).substr(0, 300)};
    store_->replies.resize(6, std::string(limits::kCommitBytes + 1, 'x'));
    EXPECT_EQ(value_of(log.read(newest)).kind, Slot::Kind::kCommit);
    EXPECT_TRUE(store_->replies.empty());
}

TEST_F(JudgedHistory, AForgedMergeIsNotSignedByTheNextWriter) {
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
    PublishOptions anchoring = publishing();
    anchoring.anchor_every = 4;
    Publisher publisher = value_of(Publisher::open(run_, *baseline_, anchoring));
    for (std::size_t i = 0; i < 8; ++i) value_of(publisher.publish(state(i), i));
    const std::uint64_t head = head_seq();
    MaintenanceOptions keyless = maintenance();
    keyless.signer.reset();
    EXPECT_EQ(outcome_of(compact_run(run_, keyless)), "denied");
    RetainOptions retaining;
    retaining.maintenance = keyless;
    retaining.grace = Milliseconds(0);
    retaining.keep_anchors = 1;
    EXPECT_EQ(outcome_of(retain_run(run_, retaining)), "denied");
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

TEST_F(JudgedHistory, ATombstoneThatOthersSteppedOverFencesNobody) {
    start_signed();
    Publisher publisher = open_publisher();
    for (std::size_t i = 0; i < 4; ++i) value_of(publisher.publish(state(i), i));
    const std::uint64_t head = head_seq();
    const std::string run = publisher.run();
    put(head + 1, write_tombstone({run, head + 1, head + 2}));
    // A job beside the trainer, which fences nobody, commits above it.
    EXPECT_GT(value_of(compact_run(run_, maintenance())).merged, 0U);
    EXPECT_EQ(head_seq(), head + 2);
    const auto published = publisher.publish(state(4), 4);
    ASSERT_TRUE(published) << published.error().text;
    EXPECT_EQ(published->seq, head + 3);
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
