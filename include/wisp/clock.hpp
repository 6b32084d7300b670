// Time as wisp sees it, so that tests can drive it.
//
// No decision about safety ever rests on a clock: time only paces polling, retries and expiry.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

namespace wisp {

using Milliseconds = std::chrono::milliseconds;

class Clock {
  public:
    virtual ~Clock() = default;
    /// Wall-clock time since 1970, in milliseconds. May jump.
    virtual std::int64_t now_ms() = 0;
    /// Returns early, within a tenth of a second, when the caller's work is to end: wisp/stop.hpp.
    virtual void sleep_for(Milliseconds duration) = 0;
};

/// The machine's own clock; thread-safe.
std::shared_ptr<Clock> system_clock();

}  // namespace wisp
