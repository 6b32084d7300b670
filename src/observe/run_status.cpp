#include <algorithm>
#include <array>
#include <ranges>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/fetch_plan.hpp"
#include "log/branch_pins.hpp"
#include "log/lineage.hpp"
#include "log/run_keys.hpp"
#include "observe/commit_summary.hpp"
#include "observe/newest_commits.hpp"
#include "observe/read_ahead.hpp"
#include "observe/replica_health.hpp"
#include "wisp/control.hpp"
#include "wisp/run_status.hpp"
#include "wisp/verdict.hpp"

namespace wisp {
namespace {

constexpr std::size_t kPage = 1000;

constexpr std::array kStoredPrefixes = {kAnchorsPrefix, kDeltasPrefix, kCommitsPrefix};

/// What lies under a prefix, page by page.
Result<ObjectTotals> stored_under(const Location& where, const std::string& prefix) {
    ObjectTotals stored;
    std::string after;
    for (;;) {
        WISP_ASSIGN(const auto page, where.store->list(prefix, after, kPage));
        for (const ListedObject& object : page) {
            ++stored.objects;
            stored.bytes += object.info.size_bytes;
        }
        if (page.size() < kPage) return stored;
        after = page.back().key;
    }
}

Result<void> count_stored(const Location& where, RunStatus& status) {
    ObjectTotals& total = status.stored.emplace();
    return ordered_parallel<ObjectTotals>(
        kStoredPrefixes.size(), kStoredPrefixes.size(),
        [&](std::uint64_t i, unsigned) {
            return stored_under(where, where.key(kStoredPrefixes[i]));
        },
        [&](std::uint64_t, ObjectTotals stored) -> Result<void> {
            total.objects += stored.objects;
            total.bytes += stored.bytes;
            return {};
        });
}

/// What is asked for whatever the run turns out to be.
void expect_first(ReadAhead& ahead, const Location& where, bool count_objects) {
    ahead.expect(where.key(kRunKey));
    // Once to know which commits will be asked for, once to find the head.
    ahead.expect(where.key(kLatestKey));
    ahead.expect(where.key(kLatestKey));
    ahead.expect_list(where.key(kReplicasPrefix), "", kMostReplicas);
    ahead.expect_list(where.key(kReplicasPrefix), "", kMostReplicas);
    ahead.expect_now();
    ahead.expect(where.key(branch_key(1)));
    ahead.expect_list(where.key(kBranchesPrefix), where.key(branch_key(0)), kPage);
    if (!count_objects) return;
    for (const std::string_view prefix : kStoredPrefixes) {
        ahead.expect_list(where.key(prefix), "", kPage);
    }
}

/// The commits around the head and the heartbeats, by what the first answers say.
Result<void> expect_commits(ReadAhead& ahead, const CommitLog& log, bool judged) {
    const Location& where = log.where();
    WISP_ASSIGN(const std::uint64_t hint, log.hinted_seq());
    const auto expect = [&](std::uint64_t seq) {
        if (seq >= log.first_seq()) ahead.expect(where.key(commit_key(seq)));
    };
    if (hint > 0) {
        expect(hint);
        expect(hint + 1);
        for (std::uint64_t i = 1; judged && i < std::min<std::uint64_t>(kJudgedCommits, hint);
             ++i) {
            expect(hint - i);
        }
        // Of a signed run some are looked at for their certificates, too.
        for (std::uint64_t i = 1; log.is_signed() && i <= 16 && i < hint; i *= 2) expect(hint - i);
    }
    const auto replicas = where.store->list(where.key(kReplicasPrefix), "", kMostReplicas);
    if (!replicas) return {};
    for (const ListedObject& object : *replicas) ahead.expect(object.key);
    return {};
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
    WISP_ASSIGN(const auto entries, newest_commits(log, *head, 0, count));
    for (const HistoryEntry& entry : entries | std::views::reverse) lines.push_back(entry.commit);
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

Result<RunStatus> read_status(const Location& given, const RunOptions& options, bool count_objects,
                              const std::optional<VerdictLimits>& limits) {
    const StopScope scope(options.stop);
    // By itself each request waits for the one before; most need not.
    Location where = given;
    std::shared_ptr<ReadAhead> ahead;
    // Where requests are counted, none is made twice, nor on the mere chance that it is needed.
    if (!given.store->terms().few_requests) {
        where.store = ahead = std::make_shared<ReadAhead>(given.store);
        expect_first(*ahead, where, count_objects);
    }
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    if (ahead) WISP_TRY(expect_commits(*ahead, log, limits.has_value()));
    RunStatus status;
    status.run = log.run();
    status.codec = log.record().codec;
    status.mode = log.record().exclusive ? CommitMode::kExclusive : CommitMode::kSingleWriter;
    status.is_signed = log.is_signed();
    for (const PublicKey& root : log.record().roots) status.roots.push_back(root.id());
    WISP_ASSIGN(const auto head, log.head());
    if (ahead && head && !head->commit.manifest) {
        ahead->expect(where.key(commit_key(head->commit.manifest_at.seq)));
    }
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
            status.join = {plan->objects, plan->bytes};
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
    if (count_objects) WISP_TRY(count_stored(where, status));
    return status;
}

}  // namespace wisp
