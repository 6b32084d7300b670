// What became of an input: a replay holds it against the seed's name.
//
// A seed whose name begins with bad_ is refused, any other taken. Else seeds of a layout that is no
// longer read would be replayed in vain, and nobody would know.
#pragma once

namespace wisp::fuzz {

enum class Outcome { kUnsaid, kRefused, kTaken };

/// Set by targets that tell.
inline Outcome outcome = Outcome::kUnsaid;

inline void tell(bool taken) {
    outcome = taken ? Outcome::kTaken : Outcome::kRefused;
}

}  // namespace wisp::fuzz
