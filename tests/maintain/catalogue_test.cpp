// Rows of the failure catalogue (doc/protocol.md section 13) that need a store with a will of its
// own: one whose listings lag, one in which retention strikes in the midst of a fetch.
#include <gtest/gtest.h>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "log/commit.hpp"
#include "log/commit_log.hpp"
#include "log/run_keys.hpp"
#include "manual_clock.hpp"
#include "wisp/follower.hpp"
#include "wisp/maintenance.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"

namespace wisp::testing {
namespace {

/// Does something once, when an object of that kind is read for the first time; and may list
/// nothing of a prefix, as a listing that lags does.
class WilfulStore : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        if (on_read && key.find(trigger) != std::string::npos) std::exchange(on_read, {})();
        return MemoryStore::read(key, offset, into);
    }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        if (!unlisted.empty() && prefix.find(unlisted) != std::string::npos) {
            return std::vector<ListedObject>{};
        }
        return MemoryStore::list(prefix, after, limit);
    }

    std::string trigger;
    std::function<void()> on_read;
    std::string unlisted;
};

class Catalogue : public ::testing::Test {
  protected:
    Catalogue() {
        options_.clock = clock_;
        InitOptions starting;
        starting.run = options_;
        value_of(init_run(run_, starting));
    }
    Publisher open_publisher(std::uint64_t anchor_every) {
        PublishOptions options;
        options.run = options_;
        options.anchor_every = anchor_every;
        return value_of(Publisher::open(run_, *baseline_, options));
    }
    Checkpoint state(std::size_t i) { return value_of(Checkpoint::open(steps_.state(i))); }
    RetainOptions at_once() const {
        RetainOptions options;
        options.maintenance.run = options_;
        options.keep_anchors = 1;
        options.grace = Milliseconds(0);
        return options;
    }
    StateDigest joined(const Location& run) {
        auto replica = value_of(open_memory_replica());
        FollowOptions options;
        options.run = options_;
        Follower follower = value_of(Follower::open(run, *replica, options));
        value_of(follower.catch_up());
        return value_of(digest_of(*replica->weights()));
    }

    CheckpointSteps steps_{12};
    TempFolder folder_;
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<WilfulStore> store_ = std::make_shared<WilfulStore>(clock_);
    Location run_{store_, "runs/a", "memory:a"};
    RunOptions options_;
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
};

// Row 7.
TEST_F(Catalogue, AWriterThatSleptThroughARetentionIsFenced) {
    Publisher sleeper = open_publisher(100);
    value_of(sleeper.publish(state(0), 0));
    auto other = value_of(open_memory_replica());
    PublishOptions options;
    options.run = options_;
    options.anchor_every = 2;
    Publisher awake = value_of(Publisher::open(run_, *other, options));
    for (std::size_t i = 1; i < 8; ++i) value_of(awake.publish(state(i), i));
    EXPECT_GT(value_of(retain_run(run_, at_once())).buried_commits, 2U);
    EXPECT_EQ(outcome_of(sleeper.publish(state(1), 1)), "fenced");
    EXPECT_EQ(joined(run_), steps_.digest(7));
}

// Row 23.
TEST_F(Catalogue, WhereNoWayIsLeftItIsAGapAndTheOldStateStays) {
    Publisher publisher = open_publisher(100);
    value_of(publisher.publish(state(0), 0));
    auto replica = value_of(open_memory_replica());
    FollowOptions options;
    options.run = options_;
    Follower follower = value_of(Follower::open(run_, *replica, options));
    value_of(follower.catch_up());
    for (std::size_t i = 1; i < 5; ++i) value_of(publisher.publish(state(i), i));
    for (const auto& object : value_of(store_->list(run_.key("deltas/"), "", 2))) {
        value_of(store_->remove(object.key));
    }
    EXPECT_EQ(outcome_of(follower.catch_up()), "gap");
    EXPECT_EQ(value_of(digest_of(*replica->weights())), steps_.digest(0));
    EXPECT_EQ(follower.at().step, 0U);
}

// Row 25.
TEST_F(Catalogue, AHintThatIsOldWrongOrMissingMovesNobody) {
    Publisher publisher = open_publisher(100);
    value_of(publisher.publish(state(0), 0));
    const std::string latest = run_.key(kLatestKey);
    const auto old = value_of(read_whole(*store_, latest, 1024));
    std::size_t step = 1;
    for (; step < 6; ++step) value_of(publisher.publish(state(step), step));
    for (const std::string& hint :
         {std::string(as_text(old)), std::string(R"({"seq":0,"wisp":"latest"})"),
          std::string(R"({"seq":1000000,"wisp":"latest"})"), std::string("no hint"),
          std::string()}) {
        const std::uint64_t head = publisher.at().seq;
        value_of(store_->put(latest, as_bytes(hint)));
        if (hint.empty()) value_of(store_->remove(latest));
        EXPECT_EQ(value_of(read_status(run_, options_)).head->seq, head) << hint;
        EXPECT_EQ(joined(run_), steps_.digest(step - 1)) << hint;
        value_of(publisher.publish(state(step), step));
        EXPECT_EQ(joined(run_), steps_.digest(step)) << hint;
        ++step;
    }
}

// Row 26.
TEST_F(Catalogue, AListingThatLagsHidesNoBranchFromRetention) {
    Publisher publisher = open_publisher(2);
    for (std::size_t i = 0; i < 4; ++i) value_of(publisher.publish(state(i), i));
    const Location branch{store_, "runs/b", "memory:b"};
    InitOptions branching;
    branching.run = options_;
    branching.branch_of = run_;
    value_of(init_run(branch, branching));
    for (std::size_t i = 4; i < 12; ++i) value_of(publisher.publish(state(i), i));
    store_->unlisted = "branches";
    clock_->advance(Milliseconds(3 * 24 * 3'600'000));
    const RetainReport report = value_of(retain_run(run_, at_once()));
    EXPECT_GT(report.removed_objects, 0U);
    EXPECT_EQ(report.held_by_branches.size(), 1U);
    EXPECT_EQ(joined(branch), steps_.digest(3));
}

TEST_F(Catalogue, APinThatIsMissingStopsRetention) {
    Publisher publisher = open_publisher(2);
    for (std::size_t i = 0; i < 4; ++i) value_of(publisher.publish(state(i), i));
    InitOptions branching;
    branching.run = options_;
    branching.branch_of = run_;
    for (const char* name : {"runs/b", "runs/c"}) {
        value_of(init_run(Location{store_, name, name}, branching));
    }
    for (std::size_t i = 4; i < 12; ++i) value_of(publisher.publish(state(i), i));
    value_of(store_->remove(run_.key(branch_key(1))));
    const std::size_t before = value_of(store_->list(run_.key("deltas/"), "", 1000)).size();
    EXPECT_EQ(outcome_of(retain_run(run_, at_once())), "gap");
    EXPECT_EQ(value_of(store_->list(run_.key("deltas/"), "", 1000)).size(), before);
}

TEST_F(Catalogue, ABranchThatWasGivenUpLetsGo) {
    Publisher publisher = open_publisher(2);
    for (std::size_t i = 0; i < 4; ++i) value_of(publisher.publish(state(i), i));
    InitOptions branching;
    branching.run = options_;
    branching.branch_of = run_;
    const std::string branch = value_of(init_run(Location{store_, "runs/b", "b"}, branching)).run;
    for (std::size_t i = 4; i < 12; ++i) value_of(publisher.publish(state(i), i));
    const std::uint64_t held = value_of(retain_run(run_, at_once())).removed_objects;
    RetainOptions releasing = at_once();
    releasing.release_branches = {branch};
    // What it held was named by commits that are buried by now: an orphan, once it is old.
    clock_->advance(Milliseconds(3 * 24 * 3'600'000));
    EXPECT_GT(value_of(retain_run(run_, releasing)).removed_objects, 0U) << held;
    releasing.release_branches = {"nobody"};
    EXPECT_EQ(outcome_of(retain_run(run_, releasing)), "invalid");
}

// Row 40.
TEST_F(Catalogue, ALateJoinerWhoseWayRetentionTakesPlansAgain) {
    Publisher publisher = open_publisher(4);
    for (std::size_t i = 0; i < 7; ++i) value_of(publisher.publish(state(i), i));
    store_->trigger = "deltas/";
    store_->on_read = [&] {
        for (std::size_t i = 7; i < 12; ++i) value_of(publisher.publish(state(i), i));
        value_of(retain_run(run_, at_once()));
    };
    EXPECT_EQ(joined(run_), steps_.digest(11));
    EXPECT_FALSE(store_->on_read) << "it struck";
}

// Row 48.
TEST_F(Catalogue, ACommitFarAheadOfTheLogMovesNobody) {
    const SigningKey key = value_of(SigningKey::generate());
    run_.prefix = "runs/signed";
    InitOptions starting;
    starting.run = options_;
    starting.signer = RunSigner{key, std::nullopt};
    value_of(init_run(run_, starting));
    PublishOptions signing;
    signing.run = options_;
    signing.signer = starting.signer;
    Publisher publisher = value_of(Publisher::open(run_, *baseline_, signing));
    value_of(publisher.publish(state(0), 0));
    const std::uint64_t head = value_of(read_status(run_, options_)).head->seq;
    const auto text = value_of(read_whole(*store_, run_.key(commit_key(head)), 1 << 20));
    Commit forged = value_of(parse_commit(as_text(text), "it")).commit;
    forged.manifest.reset();
    forged.seq = forged.epoch = std::uint64_t{1} << 40;
    forged.previous = {head, to_hex(sha256(text))};
    forged.kind = CommitKind::kHeartbeat;
    forged.base.reset();
    forged.delta.reset();
    for (const std::uint64_t slot : {forged.seq, head + 2, head + 4}) {
        value_of(store_->put(run_.key(commit_key(slot)), as_bytes(write_commit(forged))));
    }
    value_of(store_->put(run_.key(kLatestKey), as_bytes("{\"seq\":" + std::to_string(forged.seq) +
                                                        ",\"wisp\":\"latest\"}")));
    EXPECT_EQ(value_of(read_status(run_, options_)).head->seq, head);
    EXPECT_EQ(joined(run_), steps_.digest(0));
    value_of(publisher.publish(state(1), 1));
    EXPECT_EQ(joined(run_), steps_.digest(1));
    EXPECT_LT(value_of(read_status(run_, options_)).head->epoch, forged.epoch);
}

}  // namespace
}  // namespace wisp::testing
