// Asks all long work of this process to end at the next block, cleaning up after itself.
//
// Safe to call from a signal handler. The work that was under way answers kUnavailable.
#pragma once

namespace wisp {

void request_stop();
/// Takes the request back, once the work has ended, in a process that goes on.
void withdraw_stop();
bool stop_requested();

}  // namespace wisp
