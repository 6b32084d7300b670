// A clock that stands still until it is told, or asked to sleep. Thread-safe.
#pragma once

#include <atomic>

#include "wisp/control.hpp"

namespace wisp::testing {

class ManualClock : public Clock {
  public:
    std::int64_t now_ms() override { return now_ms_; }
    void sleep_for(Milliseconds duration) override {
        now_ms_ += duration.count();
        slept_ms_ += duration.count();
    }
    void advance(Milliseconds duration) { now_ms_ += duration.count(); }
    std::int64_t slept_ms() const { return slept_ms_; }

  private:
    std::atomic<std::int64_t> now_ms_ = 1'800'000'000'000;
    std::atomic<std::int64_t> slept_ms_ = 0;
};

}  // namespace wisp::testing
