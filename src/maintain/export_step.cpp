#include <fmt/format.h>

#include <system_error>

#include "base/pending_folder.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/replica_updater.hpp"
#include "log/state_search.hpp"
#include "maintain/maintenance_commit.hpp"
#include "wisp/control.hpp"
#include "wisp/maintenance.hpp"

namespace wisp {
namespace {

Result<ExportReport> export_from(const CommitLog& log, const LogEntry& head,
                                 std::optional<std::uint64_t> step,
                                 const std::filesystem::path& output,
                                 const MaintenanceOptions& options) {
    Lineage history(log, head);
    StateName target = head.commit.state;
    if (step) {
        WISP_ASSIGN(target, find_state(history, *step));
        if (target.step != *step) {
            return fail(ErrorKind::kNotFound,
                        fmt::format("{} has no step {}; the nearest before it is {}",
                                    shown(log.where().url), *step, target.step));
        }
    }
    WISP_ASSIGN(PendingFolder folder, PendingFolder::create(output));
    ExportReport report;
    {
        FolderReplicaOptions folder_options;
        folder_options.threads = options.threads;
        folder_options.progress = options.progress;
        WISP_ASSIGN(const auto replica, open_folder_replica(folder.path(), folder_options));
        ReplicaRecord at;
        ReplicaUpdaterOptions updater_options;
        updater_options.threads = options.threads;
        updater_options.parallel_fetches = options.parallel;
        updater_options.base = options.base;
        updater_options.progress = options.progress;
        updater_options.on_moved = [&](const Moved& moved) -> Result<void> {
            report.fetched_bytes += moved.fetched.bytes;
            report.fetched_objects += moved.fetched.objects;
            return {};
        };
        ReplicaUpdater updater(log, *replica, at, updater_options);
        WISP_TRY(updater.go(history, target));
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder.path() / ".wisp", ignored);
    WISP_TRY(folder.commit());
    report.seq = target.seq;
    report.step = target.step;
    report.state = target.digest;
    return report;
}

}  // namespace

Result<ExportReport> export_step(const Location& where, std::optional<std::uint64_t> step,
                                 const std::filesystem::path& output,
                                 const MaintenanceOptions& options) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options.run));
    WISP_ASSIGN(auto newest, log.head());
    const auto export_it = [&](const std::optional<LogEntry>& head) -> Result<ExportReport> {
        if (!head || head->commit.state.seq == 0) {
            return fail(ErrorKind::kNotFound,
                        fmt::format("nothing was published to {} yet", shown(where.url)));
        }
        return export_from(log, *head, step, output, options);
    };
    return past_retention(log, std::move(newest), export_it);
}

}  // namespace wisp
