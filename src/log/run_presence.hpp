// Whether a run that is silent is still there: of one that was deleted every slot is empty, which
// looks like "nothing new". Used from one thread.
#pragma once

#include <cstdint>

#include "log/commit_log.hpp"

namespace wisp {

class RunPresence {
  public:
    /// How long a silent run is believed to be there.
    static constexpr Milliseconds kBelieved{20'000};

    /// Of a run that was opened just now; the log must outlive this.
    explicit RunPresence(const CommitLog& log) : log_(&log), seen_ms_(log.clock().now_ms()) {}

    /// A commit was found.
    void note() { seen_ms_ = log_->clock().now_ms(); }
    /// kNoRun when its record is gone. Costs a request, unless it was seen within `believed`.
    Result<void> check(Milliseconds believed = kBelieved);

  private:
    const CommitLog* log_;
    std::int64_t seen_ms_;
};

}  // namespace wisp
