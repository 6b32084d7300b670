#include "wisp/clock.hpp"

#include <algorithm>
#include <thread>

#include "wisp/stop.hpp"

namespace wisp {
namespace {

class SystemClock : public Clock {
  public:
    std::int64_t now_ms() override {
        using namespace std::chrono;
        return duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    }
    void sleep_for(Milliseconds duration) override {
        // In slices: a signal handler can set a flag but wake nobody.
        constexpr Milliseconds kSlice(20);
        while (duration > Milliseconds::zero() && !stop_requested()) {
            std::this_thread::sleep_for(std::min(duration, kSlice));
            duration -= kSlice;
        }
    }
};

}  // namespace

std::shared_ptr<Clock> system_clock() {
    static const auto clock = std::make_shared<SystemClock>();
    return clock;
}

}  // namespace wisp
