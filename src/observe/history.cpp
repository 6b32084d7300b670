#include "wisp/history.hpp"

#include <algorithm>
#include <atomic>

#include "base/parallel.hpp"
#include "base/try.hpp"
#include "log/lineage.hpp"
#include "observe/commit_summary.hpp"
#include "observe/newest_commits.hpp"
#include "observe/replica_health.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

constexpr unsigned kRequestsAtATime = 8;

HistoryEntry history_entry_of(const LogEntry& entry) {
    return {summary_of(entry),          entry.commit.previous.hash, entry.signer.how,
            entry.commit.makes_state(), entry.commit.expires_ms,    entry.signer.ends_ms};
}

std::uint64_t weight_bytes_of(const AnchorEntry& anchor) {
    std::uint64_t sum = 0;
    for (const StoredFile& file : anchor.files) {
        if (file.name.ends_with(".safetensors")) sum += file.bytes();
    }
    return sum;
}

}  // namespace

Result<std::vector<HistoryEntry>> newest_commits(const CommitLog& log, const LogEntry& head,
                                                 std::uint64_t after, std::uint64_t count) {
    const std::uint64_t lowest = std::max(after + 1, log.first_seq());
    Lineage lineage(log, head);
    LogEntry above = head;
    std::atomic<bool> begun = false;
    std::vector<HistoryEntry> commits = {history_entry_of(head)};
    // Slots below a commit may be void, by somebody's will as many as there is room for: from each
    // round on it goes on where the last commit points.
    while (!begun && commits.size() < count && above.commit.previous.seq >= lowest) {
        const std::uint64_t top = above.commit.previous.seq;
        const std::uint64_t slots = std::min(count - commits.size(), top - lowest + 1);
        // Read side by side, newest first; each is held against what the one above it was built on.
        WISP_TRY(ordered_parallel<std::optional<LogEntry>>(
            slots, kRequestsAtATime,
            [&](std::uint64_t index, unsigned) -> Result<std::optional<LogEntry>> {
                if (begun) return std::nullopt;
                return log.peek(top - index);
            },
            [&](std::uint64_t index, std::optional<LogEntry> entry) -> Result<void> {
                if (begun || top - index != above.commit.previous.seq) return {};
                if (!entry || entry->hash != above.commit.previous.hash) {
                    WISP_ASSIGN(entry, lineage.before(above));
                }
                begun = !entry;
                if (begun) return {};
                commits.push_back(history_entry_of(*entry));
                above = std::move(*entry);
                return {};
            }));
    }
    std::ranges::reverse(commits);
    return commits;
}

Result<History> read_history(const Location& where, std::uint64_t after, std::uint64_t count,
                             const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(const auto head, log.head(after));
    History history;
    if (!head) return history;
    history.head_seq = head->commit.seq;
    if (history.head_seq <= after || count == 0) return history;
    WISP_ASSIGN(history.commits, newest_commits(log, *head, after, count));
    WISP_ASSIGN(const Manifest manifest, log.manifest_of(*head));
    for (const MergedDelta& merged_delta : manifest.merged_deltas) {
        history.merged_deltas.push_back({merged_delta.from.seq, merged_delta.from.step,
                                         merged_delta.to.seq, merged_delta.to.step,
                                         merged_delta.delta.bytes()});
    }
    for (const AnchorEntry& anchor : manifest.anchors) {
        if (!anchor.base && !anchor.sliced) history.full_bytes = weight_bytes_of(anchor);
    }
    return history;
}

Result<std::vector<ReplicaHealth>> read_replicas(const Location& where, const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(const auto head, log.head());
    WISP_ASSIGN(const std::int64_t now, where.store->now_ms());
    return replica_health(log, head, now);
}

}  // namespace wisp
