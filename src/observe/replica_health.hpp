// Who follows a run, by the heartbeats they left.
#pragma once

#include <optional>
#include <vector>

#include "log/commit_log.hpp"
#include "wisp/history.hpp"

namespace wisp {

inline constexpr std::size_t kMostReplicas = 10'000;

/// Everyone who left a heartbeat of this run; what cannot be read is passed over. `head` is what
/// they are behind of, `now` the store's time.
Result<std::vector<ReplicaHealth>> replica_health(const CommitLog& log,
                                                  const std::optional<LogEntry>& head,
                                                  std::int64_t now);

}  // namespace wisp
