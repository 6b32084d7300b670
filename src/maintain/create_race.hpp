// Creating one object from several threads at once, to see whether exactly one wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "wisp/store.hpp"

namespace wisp {

struct RaceShape {
    unsigned writers = 2;
    /// Large enough that the uploads overlap: a store that looks first and writes later is then
    /// caught in between.
    std::size_t body_bytes = 0;
    unsigned rounds = 1;
    /// After this no further round begins; 0: all of them.
    double seconds = 0;
};

struct RaceVerdict {
    /// Most rounds were answered. False proves nothing, neither way.
    bool decided = false;
    unsigned rounds = 0;     // that were raced until the end or the first conviction
    unsigned undecided = 0;  // of them, those in which a writer got no answer
    std::string conviction;  // empty unless a round had no winner or several
};

/// Races for objects under `scratch`; each is removed again.
Result<RaceVerdict> race_creates(const Location& scratch, const std::string& name,
                                 const RaceShape& shape, std::uint64_t seed);

}  // namespace wisp
