// Commits that change no state: how maintenance writes beside a publisher.
#pragma once

#include <functional>
#include <optional>

#include "base/try.hpp"
#include "log/commit_log.hpp"
#include "wisp/maintenance.hpp"

namespace wisp {

/// Changes manifest and floor as they are at the newest commit; false when nothing is left to do.
using EditManifest =
    std::function<bool(const Commit& head, Manifest& manifest, std::uint64_t& floor)>;

/// Takes the next slot for what `edit` makes of the newest manifest, trying again behind any writer
/// that is faster. Nothing when there was nothing to do.
Result<std::optional<LogEntry>> append_maintenance(CommitLog& log, CommitKind kind,
                                                   const MaintenanceOptions& options,
                                                   const EditManifest& edit);

/// Calls `work` with the newest commit, `head`, and again with a newer one when a retention gave up
/// meanwhile what it wanted to read.
template <class Work>
auto past_retention(const CommitLog& log, std::optional<LogEntry> head, Work work)
    -> decltype(work(std::declval<const std::optional<LogEntry>&>())) {
    for (;;) {
        auto done = work(head);
        if (done || done.error().kind != ErrorKind::kGap || !head) return done;
        WISP_ASSIGN(std::optional<LogEntry> newer, log.head(head->commit.seq));
        if (!newer || newer->commit.floor <= head->commit.floor) return done;
        head = std::move(newer);
    }
}

/// What a replica without any state would read to get to `state`.
struct JoinCost {
    std::uint64_t bytes = 0;
    std::uint64_t objects = 0;
};
JoinCost join_cost(const Manifest& manifest, const StateName& state, std::uint64_t floor);

}  // namespace wisp
