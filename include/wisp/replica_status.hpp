// What a replica says of itself in its heartbeat: advice for people, never authority.
#pragma once

#include <optional>
#include <string_view>

namespace wisp {

enum class ReplicaStatus {
    kJoining,    // holds no state yet
    kFollowing,  // serves a state, and takes newer ones as they come
    kFailing,    // cannot take the newest state; the last good one stays
    kStopped,    // has ended as it was meant to
    kUnknown,    // said a word that this version does not know; counts as one that follows
};
/// "joining", "following", "failing", "stopped" or "unknown".
std::string_view name_of(ReplicaStatus status);
/// Nothing for any other word than the first four.
std::optional<ReplicaStatus> parse_replica_status(std::string_view name);

}  // namespace wisp
