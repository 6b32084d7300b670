// For code that switches stacks itself: the scopes of a thread go with the stack.
#pragma once

#include "wisp/control.hpp"

namespace wisp {

/// Makes another scope the innermost of this thread, and tells which was.
const StopScope* exchange_innermost(const StopScope* scope);

}  // namespace wisp
