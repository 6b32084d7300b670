// What other runs need of this one: pins, in slots of their own.
//
// branches/<n> is taken by put-if-absent and never freed, like a slot of the log, so that who reads
// them asks for each by its name: whether a pin exists is not decided by a listing, which may lag.
// One that holds nothing any more stays, and names no keys. doc/protocol.md section 9.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "log/branch_pin.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct HeldPin {
    std::uint64_t slot = 0;
    BranchPin pin;
};

/// All of them, those that hold nothing included. kCorrupt or kGap when one is damaged or missing:
/// what that branch needs is not known.
Result<std::vector<HeldPin>> read_branch_pins(const Location& holder);

/// Into the slot that the branch has, or the next free one. Without keys: lets go of all, and takes
/// no slot for that.
Result<void> write_branch_pin(const Location& holder, const BranchPin& pin);

}  // namespace wisp
