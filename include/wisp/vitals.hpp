// What a verdict is made of: the newest commits of a run, and what its replicas said.
//
// Values and pure functions; any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/history.hpp"
#include "wisp/verdict.hpp"

namespace wisp {

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

/// The newest commits that are looked at: so many wherever a verdict is made, so that all agree.
inline constexpr std::size_t kJudgedCommits = 16;

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
