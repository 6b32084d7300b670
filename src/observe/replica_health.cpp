#include "observe/replica_health.hpp"

#include <algorithm>

#include "base/limits.hpp"
#include "base/try.hpp"
#include "log/heartbeat.hpp"
#include "log/run_keys.hpp"

namespace wisp {
namespace {

constexpr std::size_t kMostReplicas = 10'000;

}  // namespace

Result<std::vector<ReplicaHealth>> replica_health(const CommitLog& log,
                                                  const std::optional<LogEntry>& head,
                                                  std::int64_t now) {
    const Location& where = log.where();
    const std::string prefix = where.key(kReplicasPrefix);
    WISP_ASSIGN(const auto objects, where.store->list(prefix, "", kMostReplicas));
    std::vector<ReplicaHealth> replicas;
    for (const ListedObject& object : objects) {
        const auto bytes = read_whole(*where.store, object.key, limits::kSmallRecordBytes);
        if (!bytes) continue;
        const auto heartbeat = parse_heartbeat(as_text(*bytes));
        if (!heartbeat || heartbeat->run != log.run()) continue;
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
    }
    return replicas;
}

}  // namespace wisp
