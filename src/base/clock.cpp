#include "wisp/control.hpp"

#include <algorithm>
#include <thread>

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
        // In slices: any of several scopes may end it, by a token or by the time.
        constexpr Milliseconds kSlice(20);
        const auto end = std::chrono::steady_clock::now() + duration;
        for (auto now = end - duration; now < end && !stopped();
             now = std::chrono::steady_clock::now()) {
            std::this_thread::sleep_for(
                std::min<std::chrono::steady_clock::duration>(end - now, kSlice));
        }
    }
};

}  // namespace

std::shared_ptr<Clock> system_clock() {
    static const auto clock = std::make_shared<SystemClock>();
    return clock;
}

}  // namespace wisp
