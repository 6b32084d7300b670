// Changes of one block one after the other, as one.
#pragma once

#include "wisp/state.hpp"

namespace wisp {

/// `first` leads away from a block, `then` from where that led: replaces `first` by what leads all
/// the way. What ends where it began is left out. `room` is reused between calls.
void compose_changes(BlockChanges& first, const BlockChanges& then, BlockChanges& room);

}  // namespace wisp
