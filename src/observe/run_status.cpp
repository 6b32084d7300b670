#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/fetch_plan.hpp"
#include "log/branch_pins.hpp"
#include "log/lineage.hpp"
#include "log/run_keys.hpp"
#include "observe/commit_summary.hpp"
#include "observe/newest_commits.hpp"
#include "observe/replica_health.hpp"
#include "wisp/control.hpp"
#include "wisp/run_status.hpp"
#include "wisp/vitals.hpp"

namespace wisp {
namespace {

constexpr std::size_t kPage = 1000;

/// Every object under a prefix, page by page.
Result<void> for_each_object(const Location& where, const std::string& prefix,
                             const std::function<Result<void>(const ListedObject&)>& take) {
    std::string after;
    for (;;) {
        WISP_ASSIGN(const auto page, where.store->list(prefix, after, kPage));
        for (const ListedObject& object : page) WISP_TRY(take(object));
        if (page.size() < kPage) return {};
        after = page.back().key;
    }
}

/// Of a log that cannot be read down from its head, the verdict says so; the rest is still true.
Result<Vitals> vitals_of(const CommitLog& log, const std::optional<LogEntry>& head,
                         const std::vector<ReplicaHealth>& replicas) {
    Vitals vitals;
    vitals.now_ms = log.clock().now_ms();
    for (const ReplicaHealth& replica : replicas) vitals.replicas.push_back({replica, {}});
    if (!head) return vitals;
    auto commits = newest_commits(log, *head, 0, kJudgedCommits);
    if (commits) {
        vitals.commits = std::move(*commits);
        return vitals;
    }
    if (commits.error().kind == ErrorKind::kUnavailable) {
        return std::unexpected(std::move(commits).error());
    }
    vitals.broken = std::move(commits).error();
    return vitals;
}

}  // namespace

Result<std::vector<CommitSummary>> read_log(const Location& where, std::uint64_t count,
                                            const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(const auto head, log.head());
    std::vector<CommitSummary> lines;
    if (!head) return lines;
    Lineage history(log, *head);
    lines.push_back(summary_of(*head));
    for (LogEntry at = *head; lines.size() < count;) {
        WISP_ASSIGN(auto before, history.before(at));
        if (!before) break;
        at = std::move(*before);
        lines.push_back(summary_of(at));
    }
    return lines;
}

Result<unsigned> read_slices(const Location& where, std::uint64_t weight_bytes,
                             const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    return slices_of(log.record(), weight_bytes);
}

Result<Codec> read_codec(const Location& where, const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    return log.record().codec;
}

Result<RunStatus> read_status(const Location& where, const RunOptions& options, bool count_objects,
                              const std::optional<VerdictLimits>& limits) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    RunStatus status;
    status.run = log.run();
    status.codec = log.record().codec;
    status.mode = log.record().exclusive ? CommitMode::kExclusive : CommitMode::kSingleWriter;
    status.is_signed = log.is_signed();
    for (const PublicKey& root : log.record().roots) status.roots.push_back(root.id());
    WISP_ASSIGN(const auto head, log.head());
    WISP_ASSIGN(const std::int64_t now, where.store->now_ms());
    if (head) {
        status.head = summary_of(*head);
        status.head_age_ms = options.clock->now_ms() - head->commit.time_ms;
        status.expired =
            head->commit.expires_ms != 0 && options.clock->now_ms() > head->commit.expires_ms;
        status.floor_seq = head->commit.floor;
        WISP_ASSIGN(const Manifest manifest, log.manifest_of(*head));
        status.merged_deltas = manifest.merged_deltas.size();
        FetchPlanRequest joiner{head->commit.state, head->commit.floor, {}, {}, {}};
        for (const AnchorEntry& anchor : manifest.anchors) {
            status.anchors.push_back(
                {anchor.state.seq, anchor.state.step, anchor.bytes(), anchor.base_name});
            if (anchor.base) joiner.base = anchor.base;
        }
        if (const auto plan = plan_fetch(manifest, joiner)) {
            status.join_bytes = plan->bytes;
            status.join_objects = plan->objects;
        }
    }
    WISP_ASSIGN(const auto replicas, replica_health(log, head, now));
    for (const ReplicaHealth& replica : replicas) status.replicas.push_back(replica.summary);
    if (limits) {
        WISP_ASSIGN(const Vitals vitals, vitals_of(log, head, replicas));
        status.verdict = judge_run(vitals, *limits);
    }
    // A damaged pin is retention's to complain of.
    if (const auto pins = read_branch_pins(where)) {
        for (const auto& [slot, pin] : *pins) {
            if (!pin.keys.empty()) status.branches.push_back(pin.run);
        }
    }
    if (!count_objects) return status;
    for (const std::string_view prefix : {kAnchorsPrefix, kDeltasPrefix, kCommitsPrefix}) {
        WISP_TRY(for_each_object(where, where.key(prefix),
                                 [&](const ListedObject& object) -> Result<void> {
                                     ++status.stored_objects;
                                     status.stored_bytes += object.info.size_bytes;
                                     return {};
                                 }));
    }
    return status;
}

}  // namespace wisp
