// Finds which state of a run a step means.
#pragma once

#include <cstdint>

#include "log/lineage.hpp"

namespace wisp {

/// The newest retained state at or before `step`, looking back from the head. Steps may go back
/// where training was rewound, so the log is walked; the manifest's landmarks spare most of the
/// way. kGap.
Result<StateName> find_state(Lineage& history, std::uint64_t step);

/// The state that was the `count`-th, counted from the run's first. kGap.
Result<StateName> find_state_by_index(Lineage& history, std::uint64_t index);

}  // namespace wisp
