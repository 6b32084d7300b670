#include <fmt/format.h>

#include <algorithm>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "corridor/log_line.hpp"
#include "fetch/route.hpp"
#include "format/heartbeat.hpp"
#include "format/run_keys.hpp"
#include "store/commit_log.hpp"
#include "wisp/run.hpp"

namespace wisp {
namespace {

constexpr std::size_t kPage = 1000;
constexpr std::size_t kMostReplicas = 10'000;

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

Result<void> read_replicas(const CommitLog& log, std::int64_t now, RunStatus& status) {
    const Location& where = log.where();
    const std::string prefix = where.key(kReplicasPrefix);
    WISP_ASSIGN(const auto objects, where.store->list(prefix, "", kMostReplicas));
    for (const ListedObject& object : objects) {
        const auto bytes = read_whole(*where.store, object.key, limits::kSmallRecordBytes);
        if (!bytes) continue;
        const auto heartbeat = parse_heartbeat(as_text(*bytes));
        if (!heartbeat || heartbeat->run != log.run()) continue;
        ReplicaLine line;
        line.id = object.key.substr(prefix.size());
        line.seq = heartbeat->seq;
        line.step = heartbeat->step;
        line.state = heartbeat->state;
        line.seen_ms = std::max<std::int64_t>(0, now - object.info.modified_ms);
        status.replicas.push_back(std::move(line));
        if (status.head) {
            // How far behind is counted in states, which the heartbeat carries.
            status.replicas.back().lag_steps = heartbeat->count;
        }
    }
    return {};
}

}  // namespace

Result<std::vector<LogLine>> read_log(const Location& where, std::uint64_t count,
                                      const RunOptions& options) {
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(const auto head, log.head());
    std::vector<LogLine> lines;
    if (!head) return lines;
    lines.push_back(line_of(*head));
    for (std::uint64_t seq = head->commit.seq - 1; lines.size() < count && seq >= log.first_seq();
         --seq) {
        WISP_ASSIGN(const Slot slot, log.read(seq, Judged::kThen));
        if (!slot.entry) break;
        lines.push_back(line_of(*slot.entry));
    }
    return lines;
}

Result<RunStatus> read_status(const Location& where, const RunOptions& options,
                              bool count_objects) {
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    RunStatus status;
    status.run = log.run();
    status.mode = log.record().exclusive ? CommitMode::kExclusive : CommitMode::kSingleWriter;
    WISP_ASSIGN(const auto head, log.head());
    WISP_ASSIGN(const std::int64_t now, where.store->now_ms());
    if (head) {
        status.head = line_of(*head);
        status.is_signed = head->signer.how != Signer::How::kUnsigned;
        status.head_age_ms = options.clock->now_ms() - head->commit.time_ms;
        status.expired =
            head->commit.expires_ms != 0 && options.clock->now_ms() > head->commit.expires_ms;
        status.floor_seq = head->commit.floor;
        WISP_ASSIGN(const RoadMap map, log.map_of(*head));
        status.merged_deltas = map.roads.size();
        RouteRequest joiner{head->commit.state, head->commit.floor, {}, {}, {}};
        for (const AnchorEntry& anchor : map.anchors) {
            status.anchors.push_back(
                {anchor.state.seq, anchor.state.step, anchor.bytes(), anchor.base_name});
            if (anchor.base) joiner.base = anchor.base;
        }
        if (const auto route = plan_route(map, joiner)) {
            status.join_bytes = route->bytes;
            status.join_objects = route->objects;
        }
    }
    WISP_TRY(read_replicas(log, now, status));
    for (ReplicaLine& line : status.replicas) {
        const std::uint64_t count = line.lag_steps;
        line.lag_steps =
            head && head->commit.state.count > count ? head->commit.state.count - count : 0;
    }
    const std::string branches = where.key(kBranchesPrefix);
    WISP_TRY(for_each_object(where, branches, [&](const ListedObject& object) -> Result<void> {
        status.branches.push_back(object.key.substr(branches.size()));
        return {};
    }));
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
