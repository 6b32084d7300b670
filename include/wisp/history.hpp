// A run as people look at it: its commits with their proofs, its replicas, and one step in
// detail. Reads only; `wisp dashboard` and `wisp report` show it.
//
// Failure kinds are those of wisp/run.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wisp/inspect.hpp"
#include "wisp/run.hpp"

namespace wisp {

/// A commit, and what vouches for it.
struct HistoryEntry {
    CommitSummary commit;
    std::string previous;  // hash of the commit before, as this one names it; empty at the first
    Signer::How signature = Signer::How::kUnsigned;
    bool makes_state = false;
    std::int64_t expires_ms = 0;           // 0: never
    std::int64_t certificate_ends_ms = 0;  // of the signer's certificate; 0: there is none
};

/// A merged delta that the newest manifest names.
struct MergedDeltaSummary {
    std::uint64_t from_seq = 0;
    std::uint64_t from_step = 0;
    std::uint64_t to_seq = 0;
    std::uint64_t to_step = 0;
    std::uint64_t bytes = 0;
};

struct History {
    std::uint64_t head_seq = 0;         // 0: nothing was published yet
    std::vector<HistoryEntry> commits;  // ascending; what retention buried is left out
    std::vector<MergedDeltaSummary> merged_deltas;
    std::uint64_t full_bytes =
        0;  // of the newest anchor as files of a checkpoint; 0: there is none
};

/// The newest `count` commits after `after`, several requests at a time. Merged deltas and full
/// bytes are read only when there are such commits.
Result<History> read_history(const Location& where, std::uint64_t after, std::uint64_t count,
                             const RunOptions& options);

struct ReplicaSummary {
    std::string id;
    std::uint64_t seq = 0;
    std::uint64_t step = 0;
    std::uint64_t lag_steps = 0;  // states behind the head
    std::int64_t seen_ms = 0;     // age of its last heartbeat
    ReplicaStatus status = ReplicaStatus::kUnknown;
};

struct ReplicaHealth {
    ReplicaSummary summary;
    std::optional<std::int64_t> pause_us;  // its last apply; absent when it did not say
    std::optional<std::int64_t> every_ms;  // how often it means to be heard
};
Result<std::vector<ReplicaHealth>> read_replicas(const Location& where, const RunOptions& options);

/// As inspect_commit(), from the delta's header and directory alone: a few kilobytes, whatever the
/// size of the delta. They keep the format's rules; the seal is not held against the rest. Files
/// that are interleaved, cut into parts or foreign are fetched whole.
Result<FileReport> survey_commit(const Location& where, std::uint64_t seq,
                                 const RunOptions& options);

/// The share of the weights of one binade, 2^binade to 2^(binade + 1), that changes, as the encoder
/// forecast it. A mean over the coded blocks, by their elements.
struct ForecastShare {
    int binade = 0;
    double share = 0;
};
struct StepReport {
    FileReport file;
    std::vector<ForecastShare> forecast;  // ascending; empty when nothing was coded sparsely
};
/// As inspect_commit(), and what the blocks say about the weights they change.
Result<StepReport> report_step(const Location& where, std::uint64_t seq, const RunOptions& options);

/// The weights of one binade before a step, and how many of them the step changed. Zeros and what
/// is too small for an exponent of its own are in the lowest.
struct BinadeCount {
    int binade = 0;
    std::uint64_t elements = 0;
    std::uint64_t changed = 0;
};

/// Counts against the state before a step, which it keeps as a replica in a folder of its own.
///
/// One thread at a time. A delta does not hold old values; going to a step costs what a replica
/// would fetch: the deltas between, or an anchor when it is going back.
class ExponentCounter {
  public:
    /// The replica lies in a new folder inside `work`, which is removed in the end.
    static Result<ExponentCounter> open(const Location& where, const std::filesystem::path& work,
                                        const RunOptions& options, unsigned threads = 0);
    ExponentCounter(ExponentCounter&&) noexcept;
    ExponentCounter& operator=(ExponentCounter&&) noexcept;
    ~ExponentCounter();

    /// Ascending. kNotFound when the commit has no delta, kGap when the state before it is gone.
    Result<std::vector<BinadeCount>> count(std::uint64_t seq);

  private:
    struct State;
    explicit ExponentCounter(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
