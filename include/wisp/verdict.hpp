// How a run is, in one line: the same on the page, in `wisp status` and in its exit code.
//
// A verdict is the worst of its concerns. doc/operations.md has the rules and what to do. Values
// and pure functions; any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/history.hpp"
#include "wisp/result.hpp"

namespace wisp {

enum class Severity {
    kOk,        // green
    kWarning,   // amber: look at it in working hours
    kCritical,  // red: weights do not arrive, or soon will not
};
/// "ok", "warning" or "critical".
std::string_view name_of(Severity severity);
/// "green", "amber" or "red".
std::string_view colour_of(Severity severity);

enum class ConcernCause {
    kChainBroken,        // a commit does not follow the one before it
    kExpired,            // the newest commit is past its expiry
    kNoCommit,           // the next step is late
    kCertificateEnding,  // the signer's certificate ends soon, or has ended
    kReplicaSilent,      // a replica is not heard any more
    kLagGrowing,         // a replica falls further behind with each heartbeat
    kReplicaBehind,      // a replica does not hold the newest step
    kNothingPublished,   // the run is new
    kUnreadable,         // the run cannot be read at all
};
/// "chain_broken", "expired", "no_commit" and so on, as `wisp status --json` has them; stable.
std::string_view name_of(ConcernCause cause);

struct Concern {
    Severity severity = Severity::kWarning;
    ConcernCause cause = ConcernCause::kUnreadable;
    std::string text;
};

struct RunVerdict {
    Severity severity = Severity::kOk;
    std::string text;               // of the worst concern, and how many more there are
    std::vector<Concern> concerns;  // worst first; empty when all is well
};

/// What one run may be told to keep, where the usual rules are too lax for it.
struct VerdictLimits {
    std::optional<std::int64_t> age_ms;      // critical when the newest step is older
    std::optional<std::uint64_t> lag_steps;  // critical when a replica is further behind
};

/// Of a run that could not be read.
RunVerdict verdict_of(const Error& error);

/// "3.2 s", "5 min", "2.0 h" or "4.1 d", for ages.
std::string human_age(std::int64_t milliseconds);

/// A heartbeat that was seen while a run was watched.
struct BeatSample {
    std::int64_t heard_ms = 0;  // when it was written, since 1970
    std::uint64_t seq = 0;
    std::uint64_t lag_steps = 0;
    std::optional<std::int64_t> pause_us;
};

struct WatchedReplica {
    ReplicaHealth health;
    std::vector<BeatSample> beats;  // ascending; empty where nobody watched
};

/// How many of the newest commits are looked at, wherever a verdict is made, so that all agree.
inline constexpr std::size_t kJudgedCommits = 16;

/// What a verdict is made of.
struct Vitals {
    std::int64_t now_ms = 0;
    std::vector<HistoryEntry> commits;  // ascending
    std::vector<WatchedReplica> replicas;
    /// Why the history cannot be followed down from the head, where it cannot.
    std::optional<Error> broken;
};

enum class ReplicaCondition {
    kFollowing,
    kBehind,   // was heard ten seconds or more after a newer step was committed
    kSilent,   // was not heard for three times the interval it announced
    kStopped,  // says so itself
};
/// "ok", "behind", "dead" or "stopped".
std::string_view name_of(ReplicaCondition condition);
ReplicaCondition condition_of(const ReplicaHealth& replica,
                              const std::vector<HistoryEntry>& commits, std::int64_t now_ms);

/// The median time between steps; nothing when there are too few to say.
std::optional<std::int64_t> usual_interval_ms(const std::vector<HistoryEntry>& commits);

RunVerdict judge_run(const Vitals& vitals, const VerdictLimits& limits = {});

}  // namespace wisp
