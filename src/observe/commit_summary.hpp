// A commit as people and programs are shown it.
#pragma once

#include "log/commit_log.hpp"
#include "wisp/run.hpp"

namespace wisp {

CommitSummary summary_of(const LogEntry& entry);

}  // namespace wisp
