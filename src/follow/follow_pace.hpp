// How long a follower waits before it asks again: as long as the run's own steps take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/random.hpp"
#include "wisp/control.hpp"

namespace wisp {

class FollowPace {
  public:
    static constexpr Milliseconds kLongestWait{60'000};

    explicit FollowPace(std::uint64_t seed) : random_(seed) {}

    /// A step came so long after the one before.
    void note_step(std::int64_t after_ms) {
        intervals_ms_.push_back(after_ms);
        if (intervals_ms_.size() > kRemembered) intervals_ms_.pop_front();
    }

    /// `since_ms` the newest commit, below 0 when there is none.
    Milliseconds pause(Milliseconds poll, std::int64_t since_ms) {
        std::int64_t wait = poll.count();
        // No need to ask before most of the shortest step seen lately has gone by. The first steps
        // say little: a run often waits for its servers before them, and then hurries.
        if (intervals_ms_.size() >= kTrusted && since_ms >= 0) {
            const std::int64_t shortest = *std::ranges::min_element(intervals_ms_);
            wait = std::max(wait, shortest - shortest / 5 - since_ms);
        }
        wait = std::min<std::int64_t>(wait, kLongestWait.count());
        // Replicas started together must not ask together for ever.
        const std::int64_t tenth = wait / 10;
        return Milliseconds(
            wait - tenth +
            static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(2 * tenth + 1))));
    }

  private:
    static constexpr std::size_t kRemembered = 8;
    static constexpr std::size_t kTrusted = 3;
    std::deque<std::int64_t> intervals_ms_;
    Random random_;
};

}  // namespace wisp
