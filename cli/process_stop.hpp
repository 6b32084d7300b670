// Ctrl-C and SIGTERM as a std::stop_token: what ends the work of this process in good order.
#pragma once

#include <csignal>
#include <stop_token>

namespace wisp::cli {

/// The first SIGINT or SIGTERM stops process_stop(), the next one ends the process. To be called
/// once, before any other thread begins: all of them leave signals to the one that is started here.
void watch_signals();

std::stop_token process_stop();
inline bool interrupted() {
    return process_stop().stop_requested();
}
/// The signal that stopped it; 0: none has.
int signal_met();
/// While a child reads the keys of the terminal, Ctrl-C is for it alone, as git has it.
void leave_interrupts_to_child(bool leave);
/// Which signals were blocked when this process began, for those that it starts.
const sigset_t& first_signal_mask();

}  // namespace wisp::cli
