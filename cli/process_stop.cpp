#include "process_stop.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace wisp::cli {
namespace {

/// Never freed: the thread that waits for signals may outlive main().
struct Process {
    std::stop_source stop;
    std::atomic<int> met = 0;
    std::atomic<bool> leaves_interrupts = false;
    sigset_t first_mask{};
};

Process& process() {
    static auto* const only = new Process();
    return *only;
}

void end_by(int number) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    std::signal(number, SIG_DFL);
    ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    ::raise(number);
    ::_exit(128 + number);
}

void wait_for(const sigset_t& awaited) {
    for (;;) {
        int number = 0;
        if (::sigwait(&awaited, &number) != 0) continue;
        if (number == SIGINT && process().leaves_interrupts) continue;
        if (process().stop.stop_requested()) end_by(number);
        process().met = number;
        process().stop.request_stop();
    }
}

}  // namespace

void watch_signals() {
    sigset_t awaited;
    sigemptyset(&awaited);
    for (const int number : {SIGINT, SIGTERM}) {
        // A shell starts what it puts into the background with SIGINT ignored.
        std::signal(number, SIG_DFL);
        sigaddset(&awaited, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &awaited, &process().first_mask);
    // A handler could not do it: request_stop() runs what others have asked to be told by.
    std::thread([awaited] { wait_for(awaited); }).detach();
}

std::stop_token process_stop() {
    return process().stop.get_token();
}

int signal_met() {
    return process().met;
}

void leave_interrupts_to_child(bool leave) {
    process().leaves_interrupts = leave;
}

const sigset_t& first_signal_mask() {
    return process().first_mask;
}

}  // namespace wisp::cli
