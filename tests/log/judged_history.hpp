// A signed or unsigned run in memory, at a clock that a test moves, with whatever a stranger may
// put into its slots.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "checkpoint_steps.hpp"
#include "interrupted_store.hpp"
#include "log/commit.hpp"
#include "log/run_keys.hpp"
#include "manual_clock.hpp"
#include "wisp/follower.hpp"
#include "wisp/history.hpp"
#include "wisp/maintenance.hpp"
#include "wisp/publisher.hpp"

namespace wisp::testing {

inline constexpr Milliseconds kDay(24 * 3'600'000);

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
    Result<InitReport> branch(std::uint64_t step) {
        InitOptions options;
        options.run = at_clock();
        options.signer = signer_;
        if (signer_) options.roots = {root_.public_key()};
        options.branch_of = run_;
        options.branch_step = step;
        return init_run({store_, "runs/branch", "memory:branch"}, options);
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

}  // namespace wisp::testing
