#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>

#include "wisp/stop.hpp"

namespace wisp {
namespace {

std::atomic<bool> stop_flag = false;
static_assert(std::atomic<bool>::is_always_lock_free, "request_stop runs in signal handlers");

}  // namespace

void request_stop() {
    stop_flag.store(true);
}
void withdraw_stop() {
    stop_flag.store(false);
}
bool stop_requested() {
    return stop_flag.load(std::memory_order_relaxed);
}

unsigned thread_count(unsigned asked) {
    const unsigned wanted = asked != 0 ? asked : std::thread::hardware_concurrency();
    return std::clamp(wanted, 1U, limits::kMaxThreads);
}

}  // namespace wisp
