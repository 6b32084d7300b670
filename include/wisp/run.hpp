// A run: the history of one model's weights in a bucket. Starting one, and looking at it.
//
// doc/protocol.md is the authority. All calls here are safe beside a publisher and any number of
// followers. Failure kinds of every call on a run: kNoRun, kForked (another run, another history),
// kDenied (credentials or signatures), kCorrupt, kUnavailable, kGap.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/delta.hpp"
#include "wisp/inspect.hpp"
#include "wisp/result.hpp"
#include "wisp/state.hpp"
#include "wisp/store.hpp"
#include "wisp/trust.hpp"

namespace wisp {

struct RunOptions {
    /// Of a signed run, which of its root keys count; all of them when none is named. An unsigned
    /// run is refused when keys are named, and labelled as such otherwise.
    TrustPolicy trust;
    /// The run that must be at the address, by its identity; empty: whichever is there. kForked.
    std::string expected_run;
    std::shared_ptr<Clock> clock = system_clock();
    /// Seeds nonces and jitter; 0 takes one from the system.
    std::uint64_t seed = 0;
    /// Ends the call early: wisp/control.hpp.
    std::stop_token stop = {};
};

enum class CommitMode {
    kExclusive,     // the store lets one of several racing writers win
    kSingleWriter,  // it does not: forks are detected, not prevented
};

struct InitOptions {
    RunOptions run;
    CommitMode mode = CommitMode::kExclusive;
    /// Compact or swift, of all that is written into the run. Absent: that of the run it branches
    /// from, or else kDefaultCodec.
    std::optional<Codec> codec;
    /// Into how many slices its deltas are cut: DiffOptions::slices. Absent: that of the run it
    /// branches from, or else none, and 4 once the weights have 64 GiB and more.
    std::optional<unsigned> slices;
    /// Makes a signed run, in which nothing counts that these keys have not signed or certified;
    /// the signer's own key if empty. With a certificate, its root must be among them.
    std::vector<PublicKey> roots;
    std::optional<RunSigner> signer;
    /// Start from another run of the same bucket, at the state of this step (its newest if absent).
    std::optional<Location> branch_of;
    std::optional<std::uint64_t> branch_step;
};

struct InitReport {
    std::string run;
    Codec codec = kDefaultCodec;
    bool is_signed = false;
    bool already_there = false;  // an interrupted init of the same branch was completed
    std::optional<std::uint64_t> branch_step;
    std::uint64_t shared_bytes = 0;  // of the other run's objects, not copied
};

/// kConflict when there is a run already.
Result<InitReport> init_run(const Location& where, const InitOptions& options);

/// The codec that a run keeps.
Result<Codec> read_codec(const Location& where, const RunOptions& options);
/// How many slices its deltas are cut into, for weights of this size; 0: none.
Result<unsigned> read_slices(const Location& where, std::uint64_t weight_bytes,
                             const RunOptions& options);

enum class CommitKind {
    kDelta,      // a step, as what changed since the state before
    kAnchor,     // a step, or the state before, whole
    kMerge,      // several deltas are to be had as one
    kFloor,      // what lies below was given up
    kFence,      // another writer has taken the run
    kHeartbeat,  // the writer lives
    kBranch,     // where the run leaves another one
};
/// As `wisp log` shows it.
std::string_view name_of(CommitKind kind);

struct CommitSummary {
    std::uint64_t seq = 0;
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;
    CommitKind kind = CommitKind::kDelta;
    std::string writer;
    std::string signer;  // empty: unsigned
    std::int64_t time_ms = 0;
    std::uint64_t delta_bytes = 0;
    std::uint64_t anchor_bytes = 0;
    std::uint64_t changed_elements = 0;
    std::uint64_t total_elements = 0;
    StateDigest state;
    std::optional<std::uint64_t> rewind_from;
    std::string hash;
};

/// What a replica says of itself; advice for people, never authority.
enum class ReplicaStatus {
    kJoining,    // holds no state yet
    kFollowing,  // serves a state, and takes newer ones as they come
    kFailing,    // cannot take the newest state; the last good one stays
    kStopped,    // has ended as it was meant to
    kUnknown,    // said a word that this version does not know; counts as one that follows
};
std::string_view name_of(ReplicaStatus status);
std::optional<ReplicaStatus> parse_replica_status(std::string_view name);

/// The newest `count` commits that are still there, newest first.
Result<std::vector<CommitSummary>> read_log(const Location& where, std::uint64_t count,
                                            const RunOptions& options);

/// What the delta of a commit that is still there changed, tensor by tensor. kNotFound when it has
/// none: an anchor, a fence, or a state in which nothing changed.
Result<FileReport> inspect_commit(const Location& where, std::uint64_t seq,
                                  const RunOptions& options);

}  // namespace wisp
