#include "observe/replica_health.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/try.hpp"
#include "log/heartbeat.hpp"
#include "log/run_keys.hpp"
#include "wisp/run_status.hpp"

namespace wisp {
namespace {

constexpr unsigned kReadsAtATime = 8;
constexpr std::size_t kLongestId = 200;

bool is_plain(std::string_view id) {
    if (id.empty() || id.size() > kLongestId || id.front() == '.') return false;
    return std::ranges::all_of(id, [](char c) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        return letter || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    });
}

}  // namespace

Result<std::vector<ReplicaHealth>> replica_health(const CommitLog& log,
                                                  const std::optional<LogEntry>& head,
                                                  std::int64_t now) {
    const Location& where = log.where();
    const std::string prefix = where.key(kReplicasPrefix);
    WISP_ASSIGN(const auto objects, where.store->list(prefix, "", kMostReplicas));
    std::vector<ReplicaHealth> replicas;
    const auto read = [&](std::uint64_t i, unsigned) -> Result<std::optional<Heartbeat>> {
        const auto bytes = read_whole(*where.store, objects[i].key, limits::kSmallRecordBytes);
        if (!bytes) return std::nullopt;
        return parse_heartbeat(as_text(*bytes));
    };
    const auto take = [&](std::uint64_t i, std::optional<Heartbeat> heartbeat) -> Result<void> {
        if (!heartbeat || heartbeat->run != log.run()) return {};
        const ListedObject& object = objects[i];
        ReplicaHealth health;
        health.summary.id = object.key.substr(prefix.size());
        health.summary.seq = heartbeat->seq;
        health.summary.step = heartbeat->step;
        health.summary.status = heartbeat->status;
        health.summary.seen_ms = std::max<std::int64_t>(0, now - object.info.modified_ms);
        // How far behind is counted in states, which the heartbeat carries.
        if (head && head->commit.state.state_index > heartbeat->state_index) {
            health.summary.lag_steps = head->commit.state.state_index - heartbeat->state_index;
        }
        health.pause_us = heartbeat->pause_us;
        health.every_ms = heartbeat->every_ms;
        replicas.push_back(std::move(health));
        return {};
    };
    WISP_TRY(ordered_parallel<std::optional<Heartbeat>>(objects.size(), kReadsAtATime, read, take));
    return replicas;
}

Result<void> tell_replica(const Location& where, const RunOptions& options,
                          const ReplicaBeat& beat) {
    if (!is_plain(beat.id)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("'{}' is no name for a replica; letters, digits, '.', '_' and '-' "
                                "make one",
                                beat.id));
    }
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    Heartbeat told{log.run(), beat.seq, 0, 0, beat.status, beat.pause_us, beat.every_ms};
    if (beat.seq != 0) {
        WISP_ASSIGN(const auto entry, log.peek(beat.seq));
        if (!entry) {
            return fail(ErrorKind::kGap,
                        fmt::format("there is no commit {} that '{}' could be at; it may be given "
                                    "up by now",
                                    beat.seq, beat.id));
        }
        told.step = entry->commit.state.step;
        told.state_index = entry->commit.state.state_index;
    }
    return where.store->put(where.key(std::string(kReplicasPrefix) + beat.id),
                            as_bytes(write_heartbeat(told)));
}

}  // namespace wisp
