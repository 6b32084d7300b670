// The machine's clock, with sleeps that another thread can end.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "wisp/control.hpp"

namespace wisp::python {

class WakingClock : public Clock {
  public:
    std::int64_t now_ms() override { return system_clock()->now_ms(); }
    void sleep_for(Milliseconds duration) override {
        constexpr Milliseconds kLook(50);  // how often it looks whether the work is to end
        const auto end = std::chrono::steady_clock::now() + duration;
        std::unique_lock lock(mutex_);
        while (!awake_ && !stopped() && std::chrono::steady_clock::now() < end) {
            woken_.wait_until(lock, std::min(end, std::chrono::steady_clock::now() + kLook));
        }
        awake_ = false;
    }
    void wake() {
        const std::scoped_lock lock(mutex_);
        awake_ = true;
        woken_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable woken_;
    bool awake_ = false;
};

}  // namespace wisp::python
