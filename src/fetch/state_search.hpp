// Finds which state of a run a step means.
#pragma once

#include <cstdint>
#include <vector>

#include "store/commit_log.hpp"

namespace wisp {

/// The newest retained state at or before `step`, looking back from `head`. Steps may go back where
/// training was rewound, so the log is walked; the map's landmarks spare most of the way. kGap.
Result<StateName> find_state(const CommitLog& log, const LogEntry& head, const RoadMap& map,
                             std::uint64_t step);

}  // namespace wisp
