// Certificates that end, are renewed and are replaced: who is believed, and from when on.
#include "log/commit_log.hpp"
#include "log/judged_history.hpp"

namespace wisp::testing {
namespace {

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

TEST_F(JudgedHistory, ARenewedFileReachesAWriterThatRuns) {
    start_signed();
    const fs::path file = folder_ / "trainer.cert";
    const auto renew = [&](std::uint64_t serial) {
        certify(serial, kDay * 30);
        value_of(signer_->certificate->save(file));
    };
    renew(1);
    signer_->certificate_file = file;
    Publisher publisher = open_publisher();
    value_of(publisher.publish(state(0), 0));
    // Another key's by mistake, then nothing: the word that was given lasts as long as it says.
    const PublicKey other = value_of(SigningKey::generate()).public_key();
    value_of(value_of(Certificate::make(root_, other, 9, clock_->now_ms() + 1000)).save(file));
    value_of(publisher.heartbeat());
    fs::remove(file);
    value_of(publisher.heartbeat());
    clock_->advance(kDay * 29);
    renew(2);
    clock_->advance(kDay * 2);
    value_of(publisher.publish(state(1), 1));
    Follower follower = follow(*replica_);
    value_of(follower.catch_up());
    EXPECT_EQ(follower.at().certificate_serial, 2U);
    // Too late, and put right without a restart.
    clock_->advance(kDay * 30);
    EXPECT_EQ(outcome_of(publisher.publish(state(2), 2)), "denied");
    renew(3);
    value_of(publisher.publish(state(2), 2));
    value_of(follower.catch_up());
    EXPECT_EQ(digest(*replica_), steps_.digest(2));
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

TEST_F(JudgedHistory, AReplacedKeyThatBuildsOnItselfMovesNobody) {
    start_signed();
    publish(0, 2);
    const std::optional<RunSigner> stolen = signer_;
    trainer_ = value_of(SigningKey::generate());
    certify(2, kDay * 30);
    publish(2, 6);
    const std::uint64_t head = head_seq();
    // Each on the one before it: nothing but the slots further down tells who was replaced.
    for (std::uint64_t seq = head; seq < head + 4; ++seq) {
        std::string text = write_commit(forged_after(seq, CommitKind::kHeartbeat));
        text += value_of(
            write_signature_block(stolen->key, stolen->certificate, "commit", as_bytes(text)));
        put(seq + 1, text);
        EXPECT_EQ(head_seq(), head);
        auto late = value_of(open_memory_replica());
        Follower joining = follow(*late);
        value_of(joining.catch_up());
        EXPECT_EQ(joining.at().seq, head);
    }
    publish(6, 7);
    EXPECT_EQ(value_of(read_log(run_, 1, at_clock())).at(0).step, 6U);
}

TEST_F(JudgedHistory, ARootThatSignsByItselfBringsNoReplacedKeyBack) {
    start_signed();
    const std::optional<RunSigner> stolen = signer_;
    trainer_ = value_of(SigningKey::generate());
    certify(2, kDay * 30);
    publish(0, 4);
    signer_ = RunSigner{root_, std::nullopt};
    baseline_ = value_of(open_memory_replica());
    publish(4, 5);
    const std::uint64_t head = head_seq();
    signer_ = stolen;
    auto other = value_of(open_memory_replica());
    EXPECT_EQ(outcome_of(Publisher::open(run_, *other, publishing())), "denied");
    for (std::uint64_t seq = head; seq < head + 2; ++seq) {
        std::string text = write_commit(forged_after(seq, CommitKind::kHeartbeat));
        text += value_of(
            write_signature_block(stolen->key, stolen->certificate, "commit", as_bytes(text)));
        put(seq + 1, text);
        EXPECT_EQ(head_seq(), head);
    }
}

TEST_F(JudgedHistory, AClockThatIsSetBackWhileTheHeadIsLookedForMakesNoOlderHead) {
    start_signed();
    certify(1, kDay);
    publish(0, 4);
    const std::uint64_t newest = head_seq();
    const CommitLog log = value_of(CommitLog::open(run_, at_clock()));
    clock_->advance(kDay * 2);
    // The newest and the one below it have lapsed by then; the one below that has not.
    store_->interrupted_at = slot(newest - 2);
    store_->meanwhile = [&] { clock_->advance(-kDay * 2); };
    EXPECT_EQ(outcome_of(log.head()), "denied") << "all of it is judged at one moment";
    EXPECT_EQ(value_of(log.head())->commit.seq, newest);
}

TEST_F(JudgedHistory, ACertificateThatEndsWhileASlotIsTakenMakesNobodysCommitVoid) {
    start_signed();
    certify(1, kDay);
    publish(0, 2);
    CommitLog log = value_of(CommitLog::open(run_, at_clock()));
    const auto head = value_of(log.head());
    publish(2, 3);
    const std::uint64_t next = head->commit.seq + 1;
    certify(2, kDay * 30);
    store_->interrupted_at = slot(next);
    store_->meanwhile = [&] { clock_->advance(kDay * 2); };
    const auto heartbeat = [&](std::uint64_t) {
        Commit commit = head->commit;
        commit.kind = CommitKind::kHeartbeat;
        commit.base.reset();
        commit.delta.reset();
        commit.manifest.reset();
        return commit;
    };
    const auto appended = value_of(log.append(heartbeat, head, signer_));
    EXPECT_FALSE(appended.won)
        << "somebody was first, and the head counted when that was looked at";
    EXPECT_EQ(appended.entry.commit.seq, next);
}

}  // namespace
}  // namespace wisp::testing
