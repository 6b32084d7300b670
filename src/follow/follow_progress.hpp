// Where a replica stands, how far it has to go, and what the user's on_event is told of both.
#pragma once

#include <cstdint>
#include <optional>

#include "follow/follow_pace.hpp"
#include "wisp/follower.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct Moved;

/// The newest that is known to be there.
struct KnownHead {
    std::uint64_t seq = 0;
    std::uint64_t state_index = 0;
    std::int64_t time_ms = 0;     // 0: not known
    std::int64_t expires_ms = 0;  // 0: never
};

/// The user's code may refuse to go on. A refusal must not be taken for a fault of the run, which
/// is worked around or waited for: on its way out it is kInternal, whatever its kind, and gets that
/// back in outcome(), where the call ends.
class FollowProgress {
  public:
    /// The options are adapted to the terms of the store that is followed.
    FollowProgress(const Store& store, const FollowOptions& options, ReplicaRecord record);

    FollowOptions options;
    ReplicaRecord at;
    KnownHead head;

    /// Takes a newer head than the known one. `steps`: it made a state, so that its distance from
    /// the last one says how long the run's steps take.
    void know(const KnownHead& newest, bool steps);
    /// Whether a step that was found lies behind the one to stop at.
    bool is_past_bound(std::uint64_t step);
    /// How long to wait before asking again.
    Milliseconds pause();

    Result<void> tell_moved(const Moved& moved);
    Result<void> tell_fault(const Error& error, bool distrusted = false);
    Result<void> tell_waiting();
    bool refused() const { return refusal_.has_value(); }
    /// What a call answers with: its report, or what it was refused with.
    Result<FollowReport> outcome(Result<FollowReport> report);
    FollowReport report(bool moved) const;

  private:
    FollowEvent event(FollowEvent::Kind kind) const;
    Result<void> tell(const FollowEvent& event);
    bool expired() const;
    std::uint64_t lag() const;

    FollowPace pace_;
    bool bound_is_passed_ = false;  // by the run
    std::optional<Error> refusal_;
};

}  // namespace wisp
