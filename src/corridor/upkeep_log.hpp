// Commits that change no state: how upkeep writes beside a publisher.
#pragma once

#include <functional>

#include "store/commit_log.hpp"
#include "wisp/upkeep.hpp"

namespace wisp {

/// Changes map and floor as they are at the newest commit; false when nothing is left to do.
using EditMap = std::function<bool(const Commit& head, RoadMap& map, std::uint64_t& floor)>;

/// Takes the next slot for what `edit` makes of the newest map, trying again behind whoever is
/// faster. Nothing when there was nothing to do.
Result<std::optional<LogEntry>> append_upkeep(CommitLog& log, CommitKind kind,
                                              const UpkeepOptions& options, const EditMap& edit);

/// What a replica without any state would read to get to `state`.
struct JoinCost {
    std::uint64_t bytes = 0;
    std::uint64_t objects = 0;
};
JoinCost join_cost(const RoadMap& map, const StateName& state, std::uint64_t floor);

/// The state that was the `count`-th, looking between two seqs that enclose it.
Result<StateName> find_state_by_count(const CommitLog& log, std::uint64_t low_seq,
                                      std::uint64_t high_seq, std::uint64_t count);

}  // namespace wisp
