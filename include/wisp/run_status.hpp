// A run at a glance: its head, anchors, replicas and branches; and its newest state, watched.
//
// Failure kinds are those of wisp/run.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wisp/run.hpp"
#include "wisp/verdict.hpp"

namespace wisp {

struct AnchorSummary {
    std::uint64_t seq = 0;
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    std::string base_name;
};

struct ObjectTotals {
    std::uint64_t objects = 0;
    std::uint64_t bytes = 0;
    friend bool operator==(const ObjectTotals&, const ObjectTotals&) = default;
};

struct RunStatus {
    std::string run;
    CommitMode mode = CommitMode::kExclusive;
    Codec codec = kDefaultCodec;
    bool is_signed = false;
    std::vector<std::string> roots;     // ids of the keys that vouch for it
    std::optional<CommitSummary> head;  // absent: nothing was published yet
    std::int64_t head_age_ms = 0;
    bool expired = false;
    std::uint64_t floor_seq = 0;
    std::vector<AnchorSummary> anchors;
    std::uint64_t merged_deltas = 0;
    std::optional<ObjectTotals> stored;  // absent: they were not counted
    std::optional<ObjectTotals> join;    // what a late joiner would read now; absent: it cannot
    std::vector<ReplicaSummary> replicas;
    std::vector<std::string> branches;
    RunVerdict verdict;
};

/// `count_objects` lists the bucket; without it `stored` stays absent. Without `limits` nothing
/// is judged.
Result<RunStatus> read_status(const Location& where, const RunOptions& options,
                              bool count_objects = true,
                              const std::optional<VerdictLimits>& limits = VerdictLimits{});

/// The names of the runs that lie directly under a prefix, ascending; a thousand at most. Two
/// requests for each folder there, whatever it holds.
Result<std::vector<std::string>> find_runs(const Location& under, const RunOptions& options);

/// What a replica says of itself in the run: advice for people, never authority.
struct ReplicaBeat {
    std::string id;
    std::uint64_t seq = 0;  // of the commit whose state it holds; 0: none yet
    ReplicaStatus status = ReplicaStatus::kFollowing;
    std::optional<std::int64_t> pause_us = std::nullopt;  // what the last switch took
    std::optional<std::int64_t> every_ms = std::nullopt;  // how often it means to be heard
};

/// For a process that speaks for replicas which it does not hold itself: the servers of a host.
/// kInvalid: the id cannot be a name in the bucket; kGap: there is no commit `seq`.
Result<void> tell_replica(const Location& where, const RunOptions& options,
                          const ReplicaBeat& beat);

/// The newest state, watched by a process that holds no weights. Used from one thread.
class RunWatch {
  public:
    /// kNoRun when there is none.
    static Result<RunWatch> open(const Location& where, const RunOptions& options);
    RunWatch(RunWatch&&) noexcept;
    RunWatch& operator=(RunWatch&&) noexcept;
    ~RunWatch();

    const std::string& run() const;
    /// The newest commit, and with it the step and the state that the run stands at; nothing when
    /// no state was published yet. One request when nothing is new. With `until`, the newest commit
    /// that stands at that step or before it: kGap when the log no longer reaches back so far.
    Result<std::optional<CommitSummary>> newest(std::optional<std::uint64_t> until = std::nullopt);

  private:
    struct State;
    explicit RunWatch(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
