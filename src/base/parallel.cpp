#include "base/parallel.hpp"

#include <algorithm>

namespace wisp {

unsigned thread_count(unsigned asked) {
    const unsigned wanted = asked != 0 ? asked : std::thread::hardware_concurrency();
    return std::clamp(wanted, 1U, limits::kMaxThreads);
}

}  // namespace wisp
