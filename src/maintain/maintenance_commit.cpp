#include "maintain/maintenance_commit.hpp"

#include "base/try.hpp"
#include "follow/fetch_plan.hpp"
#include "log/manifest.hpp"
#include "log/slot_races.hpp"

namespace wisp {
namespace {

/// Nothing when there is nothing to edit.
Result<std::optional<CommitLog::Appended>> append_after(CommitLog& log, const LogEntry& head,
                                                        CommitKind kind,
                                                        const MaintenanceOptions& options,
                                                        const EditManifest& edit) {
    const Commit& newest = head.commit;
    Commit commit;
    commit.kind = kind;
    commit.epoch = newest.epoch;
    commit.writer = "maintenance";
    commit.owner = newest.owner;
    commit.expires_ms = newest.expires_ms;
    commit.state = newest.state;
    commit.schema = newest.schema;
    commit.total_elements = newest.total_elements;
    commit.floor = newest.floor;
    commit.anchor_seq = newest.anchor_seq;
    WISP_ASSIGN(commit.manifest, log.manifest_of(head));
    if (!edit(newest, *commit.manifest, commit.floor)) return std::nullopt;
    thin(*commit.manifest);
    WISP_ASSIGN(auto appended,
                log.append([&](std::uint64_t) { return commit; }, head, options.signer));
    return appended;
}

}  // namespace

Result<std::optional<LogEntry>> append_maintenance(CommitLog& log, CommitKind kind,
                                                   const MaintenanceOptions& options,
                                                   const EditManifest& edit) {
    WISP_ASSIGN(std::optional<LogEntry> head, log.head_for(options.signer, false));
    for (int race = 0; race < kSlotRaces; ++race) {
        if (!head) return std::optional<LogEntry>{};
        auto appended = append_after(log, *head, kind, options, edit);
        if (!appended) {
            // A process that slept here may wake up below the floor: the edit is made again above
            // it.
            const ErrorKind what = appended.error().kind;
            const std::uint64_t seq = head->commit.seq;
            if (what != ErrorKind::kFenced && what != ErrorKind::kGap) {
                return std::unexpected(std::move(appended).error());
            }
            WISP_ASSIGN(head, log.head_for(options.signer, false));
            if (!head || head->commit.seq <= seq) {
                return std::unexpected(std::move(appended).error());
            }
            continue;
        }
        if (!*appended) return std::optional<LogEntry>{};
        if ((*appended)->won) return std::optional<LogEntry>(std::move((*appended)->entry));
        head = std::move((*appended)->entry);
    }
    return std::unexpected(lost_slot_races(log.where()));
}

JoinCost join_cost(const Manifest& manifest, const StateName& state, std::uint64_t floor) {
    FetchPlanRequest request{state, floor, {}, {}, {}};
    for (const AnchorEntry& anchor : manifest.anchors) {
        if (anchor.base) request.base = anchor.base;
    }
    const auto plan = plan_fetch(manifest, request);
    return plan ? JoinCost{plan->bytes, plan->objects} : JoinCost{};
}

}  // namespace wisp
