// A run at a glance: its head, anchors, replicas and branches.
//
// Failure kinds are those of wisp/run.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wisp/run.hpp"

namespace wisp {

struct ReplicaSummary {
    std::string id;
    std::uint64_t seq = 0;
    std::uint64_t step = 0;
    std::uint64_t lag_steps = 0;  // states behind the head
    std::int64_t seen_ms = 0;     // age of its last heartbeat
    std::string state;            // "following", "stopped", …
};

struct AnchorSummary {
    std::uint64_t seq = 0;
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    std::string base_name;
};

struct RunStatus {
    std::string run;
    CommitMode mode = CommitMode::kExclusive;
    bool is_signed = false;
    std::vector<std::string> roots;     // ids of the keys that vouch for it
    std::optional<CommitSummary> head;  // absent: nothing was published yet
    std::int64_t head_age_ms = 0;
    bool expired = false;
    std::uint64_t floor_seq = 0;
    std::vector<AnchorSummary> anchors;
    std::uint64_t merged_deltas = 0;
    std::uint64_t stored_objects = 0;
    std::uint64_t stored_bytes = 0;
    std::uint64_t join_bytes = 0;  // what a late joiner would read now
    std::uint64_t join_objects = 0;
    std::vector<ReplicaSummary> replicas;
    std::vector<std::string> branches;
};

/// `count_objects` lists the bucket; without it the stored sizes stay 0.
Result<RunStatus> read_status(const Location& where, const RunOptions& options,
                              bool count_objects = true);

}  // namespace wisp
