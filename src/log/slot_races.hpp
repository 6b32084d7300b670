// How long a writer tries for the next slot of a log that others keep taking.
#pragma once

#include <fmt/format.h>

#include "base/text.hpp"
#include "wisp/result.hpp"
#include "wisp/store.hpp"

namespace wisp {

inline constexpr int kSlotRaces = 100;

/// What it fails with after as many.
inline Error lost_slot_races(const Location& run) {
    return {ErrorKind::kConflict,
            fmt::format("others keep writing to {}; stop them, or try again", shown(run.url))};
}

}  // namespace wisp
