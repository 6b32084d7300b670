// The rollout side: brings a replica to the newest committed state, and keeps it there.
//
// Every object is verified before the first weight changes; a failure leaves the replica at its
// last good state. Whatever can heal by itself does: lost objects are worked around, a damaged or
// left-behind replica starts over from an anchor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "wisp/replica.hpp"
#include "wisp/run.hpp"

namespace wisp {

/// One move of the replica, told after it is durable. Far behind, several deltas are one move.
struct FollowEvent {
    enum class Kind { kApplied, kJoined, kWaiting, kFault };
    Kind kind = Kind::kApplied;
    std::uint64_t seq = 0;
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;
    std::uint64_t head_seq = 0;   // the newest commit known
    std::uint64_t lag_steps = 0;  // states still to go
    StateDigest state;
    std::uint64_t fetched_bytes = 0;
    std::uint64_t fetched_objects = 0;
    std::uint64_t deltas_applied = 0;
    std::uint64_t changed_elements = 0;
    std::int64_t commit_age_ms = 0;  // from the newest commit's time to now, by our clock
    bool expired = false;            // as in FollowReport
    double fetch_seconds = 0;
    double verify_seconds = 0;
    double apply_seconds = 0;  // decode, journal and write
    bool unproven = false;     // as in ReplicaRecord
    std::string fault;         // of kFault: what went wrong and was worked around
    ErrorKind fault_kind = ErrorKind::kInternal;
    bool distrusted = false;  // of kFault: nobody trusted vouches for what was read
};

struct FollowOptions {
    RunOptions run;
    unsigned threads = 0;
    unsigned parallel_fetches = 4;
    /// A checkpoint the replica may start from instead of fetching an anchor.
    std::optional<std::filesystem::path> base;
    /// Where to write heartbeats: replicas/<id>; empty: none.
    std::string replica_id;
    Milliseconds heartbeat = Milliseconds(30'000);
    Milliseconds poll = Milliseconds(1'000);
    /// Go on although the bucket was set back behind this replica.
    bool accept_rewind = false;
    /// Refuse to call the replica current when the head is older than this; 0: never.
    Milliseconds max_staleness = Milliseconds(0);
    /// Go no further than this step.
    std::optional<std::uint64_t> until_step;
    /// Told of what is fetched, while it is; the replica's own options have one for the rest.
    Progress transfers = {};
    /// What it fails with ends the call under way, whatever was being told.
    std::function<Result<void>(const FollowEvent&)> on_event;
};

struct FollowReport {
    ReplicaRecord at;
    bool moved = false;
    bool reached_until = false;
    bool expired = false;  // the head's expiry, or max_staleness, has passed
    std::uint64_t head_seq = 0;
    std::uint64_t lag_steps = 0;
};

class FollowSource;

class Follower {
  public:
    /// Of a run; open_trl_follower() in wisp/trl_layout.hpp is the other way to one. Loads and
    /// proves the replica, which must outlive the follower.
    static Result<Follower> open(const Location& run, Replica& replica,
                                 const FollowOptions& options);
    explicit Follower(std::unique_ptr<FollowSource> source);
    Follower(Follower&&) noexcept;
    Follower& operator=(Follower&&) noexcept;
    ~Follower();

    /// Goes to the newest state there is and returns.
    Result<FollowReport> catch_up();
    /// Takes the next step if there is one: a request for the commit and one for its delta. When
    /// more are waiting than that, or the next cannot be taken alone, as catch_up().
    Result<FollowReport> take_next();
    /// catch_up() again and again, pacing itself by the run, until the step is reached, a failure
    /// that does not heal (of `on_event` too), or FollowOptions::run.stop.
    Result<FollowReport> follow();
    const ReplicaRecord& at() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace wisp
