// What a follower follows: the commits of a run, or another layout of a bucket. A source can bring
// its replica to the newest state once, and says what it knows of the head; when to do so again is
// the follower's.
#pragma once

#include <string>

#include "follow/follow_progress.hpp"

namespace wisp {

class FollowSource {
  public:
    /// The replica must outlive the source. `record` is read_record()'s.
    FollowSource(const Location& where, Replica& held, const FollowOptions& options,
                 ReplicaRecord record)
        : replica(held), progress(*where.store, options, std::move(record)) {}
    virtual ~FollowSource() = default;

    /// What the record says was seen must still be there. kForked, kGap.
    virtual Result<void> check_past() = 0;
    /// Takes the replica to the newest state wanted, telling of each move. Whether it moved.
    /// `thorough`: also asks where most likely nothing is new.
    virtual Result<bool> catch_up(bool thorough) = 0;
    /// Whether a failure may be gone when asked again later.
    virtual bool heals(ErrorKind kind) const { return kind == ErrorKind::kUnavailable; }

    Replica& replica;
    FollowProgress progress;
};

/// The commits of a run. Loads and proves the replica; writes heartbeats, the last when it ends.
Result<std::unique_ptr<FollowSource>> open_run_source(const Location& run, Replica& replica,
                                                      const FollowOptions& options);

/// The record of a replica that follows `run`, which lies at `where`; an empty one when it is new.
/// kForked when it follows another.
Result<ReplicaRecord> read_record(Replica& replica, const std::string& run, const Location& where);

}  // namespace wisp
