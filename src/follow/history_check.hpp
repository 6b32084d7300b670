// What a replica has seen of a log, held against what the log says now: that it is one history.
#pragma once

#include <string>

#include "log/lineage.hpp"
#include "wisp/replica.hpp"

namespace wisp {

struct HistoryCheck {
    const CommitLog& log;
    const ReplicaRecord& at;
    std::string label;
    bool accept_rewind = false;

    /// The commit that the record's mark is at. Nothing when it is gone, and history has it all the
    /// same, or a rewind is accepted. kForked, kGap.
    Result<std::optional<LogEntry>> find_mark() const;
    /// Whether the history is a continuation of what was seen. What retention has given up can be
    /// asked for no more; the floor, which the head vouches for, tells. kForked; kGap when what is
    /// missing leaves it open.
    Result<void> check_descent(Lineage& history) const;
    /// The same of the one commit that comes next. kGap: those between cannot be read.
    Result<void> check_follows(const LogEntry& next) const;
    /// Whether there are commits beyond the next slot, which is empty: then one was lost, and "not
    /// yet" would be a lie. Only a commit that counts is believed, not the hint.
    Result<bool> skips_a_commit() const;
    /// What a replica stands at was judged when it was new. It needs no head above it to stay,
    /// whatever has become of certificates since.
    bool is_no_newer(const Result<std::optional<LogEntry>>& head) const;
    Result<bool> still_has_mark() const;
};

}  // namespace wisp
