// The events of a follower, told to whoever follows, who may refuse to go on.
#pragma once

#include <optional>
#include <utility>

#include "wisp/follower.hpp"

namespace wisp {

/// A refusal must not be taken for a fault of the run, which is worked around or waited for: on its
/// way out it is kInternal, whatever its kind, and gets that back where the call ends.
class EventListener {
  public:
    explicit EventListener(std::function<Result<void>(const FollowEvent&)> listener)
        : listener_(std::move(listener)) {}

    Result<void> tell(const FollowEvent& event) {
        if (!listener_) return {};
        auto told = listener_(event);
        if (told) return told;
        refusal_ = std::move(told).error();
        return fail(ErrorKind::kInternal, refusal_->text);
    }

    /// What a call answers with: its report, or what it was refused with.
    Result<FollowReport> outcome(Result<FollowReport> report) {
        const auto refusal = std::exchange(refusal_, std::nullopt);
        if (refusal) return std::unexpected(*refusal);
        return report;
    }

  private:
    std::function<Result<void>(const FollowEvent&)> listener_;
    std::optional<Error> refusal_;
};

}  // namespace wisp
