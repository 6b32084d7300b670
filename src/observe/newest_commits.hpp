// The newest commits of a log, down from a head that counts.
#pragma once

#include <cstdint>
#include <vector>

#include "log/commit_log.hpp"
#include "wisp/history.hpp"

namespace wisp {

/// At most `count` commits after `after`, ascending, several requests at a time. `head` is after
/// `after`, and `count` at least 1. kGap, kForked, kCorrupt: the chain leads no further down.
Result<std::vector<HistoryEntry>> newest_commits(const CommitLog& log, const LogEntry& head,
                                                 std::uint64_t after, std::uint64_t count);

}  // namespace wisp
