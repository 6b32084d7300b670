#include <algorithm>
#include <bit>
#include <system_error>

#include "base/file.hpp"
#include "base/pending_folder.hpp"
#include "base/try.hpp"
#include "follow/fetch_plan.hpp"
#include "follow/object_fetcher.hpp"
#include "follow/replica_updater.hpp"
#include "log/manifest.hpp"
#include "log/state_search.hpp"
#include "maintain/maintenance_commit.hpp"
#include "publish/uploader.hpp"
#include "wisp/control.hpp"
#include "wisp/delta.hpp"
#include "wisp/maintenance.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 30;

/// A stretch of the log that one merged delta shall stand for.
struct Piece {
    StateName from;
    StateName to;
};

/// From the newest anchor on, in falling powers of two: [0, 512), [512, 768), … as the states since
/// the anchor are written in binary. Adding states changes only the last pieces.
Result<std::vector<Piece>> wanted_pieces(Lineage& history, const Manifest& manifest) {
    std::vector<Piece> pieces;
    if (manifest.anchors.empty()) return pieces;
    const StateName& now = history.head().commit.state;
    StateName from = manifest.anchors.back().state;
    if (from.chain_id != now.chain_id) return pieces;
    if (from.seq < history.log().first_seq()) {
        // What a branch took over lies in another log, as merged deltas already.
        WISP_ASSIGN(const LogEntry first, history.at(history.log().first_seq()));
        from = first.commit.state;
    }
    std::uint64_t left = now.state_index - from.state_index;
    while (left >= 2) {
        const std::uint64_t size = std::bit_floor(left);
        WISP_ASSIGN(const StateName to, find_state_by_index(history, from.state_index + size));
        pieces.push_back({from, to});
        from = to;
        left -= size;
    }
    return pieces;
}

class Compactor {
  public:
    Compactor(Lineage& history, Manifest manifest, Replica& replica,
              const MaintenanceOptions& options, fs::path work)
        : history_(history),
          head_(history.head()),
          manifest_(std::move(manifest)),
          options_(options),
          work_(std::move(work)),
          fetcher_(history.log().where(), work_ / "pieces", options.parallel),
          uploader_(history.log().where(), options.parallel, kPartBytes, options.progress),
          updater_(history.log(), replica, at_,
                   {options.threads, options.parallel, options.base, {}, {}, options.progress}) {}

    /// Nothing when the piece is a single delta's, or holds no change.
    Result<std::optional<MergedDelta>> merge_piece(const Piece& piece) {
        WISP_TRY(updater_.go(history_, piece.from));
        FetchPlanRequest request{piece.to, head_.commit.floor, piece.from, {}, {}};
        const auto plan = plan_fetch(manifest_, request);
        if (!plan || plan->start != FetchPlan::Start::kHere) return std::optional<MergedDelta>{};
        std::vector<fs::path> deltas;
        for (const FetchStep& fetch_step : plan->steps) WISP_TRY(fetch_one(fetch_step, deltas));
        if (deltas.size() < 2) return std::optional<MergedDelta>{};
        const fs::path merged = work_ / "merged.safetensors";
        {
            // merge() wants a checkpoint; the replica's folder is one.
            WISP_ASSIGN(const Checkpoint base, Checkpoint::open(work_ / "replica"));
            DiffOptions merging;
            merging.codec = history_.log().record().codec;
            merging.slices = slices_of(history_.log().record(), base.schema().total_bytes());
            merging.threads = options_.threads;
            merging.step = piece.to.step;
            merging.progress = options_.progress;
            WISP_TRY(merge(base, deltas, merged, merging));
        }
        const auto name_key = [&](const ObjectName& name) {
            return merged_key(name, piece.from.step);
        };
        WISP_ASSIGN(StoredFile stored,
                    uploader_.upload(merged, "", name_key, piece.to.step, head_.commit.epoch));
        MergedDelta merged_delta{piece.from, piece.to, std::move(stored)};
        add_merged_delta(manifest_, merged_delta);
        fetcher_.clear();
        std::error_code ignored;
        fs::remove(merged, ignored);
        return std::optional<MergedDelta>(std::move(merged_delta));
    }

  private:
    Result<void> fetch_one(const FetchStep& fetch_step, std::vector<fs::path>& deltas) {
        if (fetch_step.merged_delta) {
            WISP_ASSIGN(fs::path path, fetcher_.fetch_surely(*fetch_step.merged_delta));
            deltas.push_back(std::move(path));
            return {};
        }
        WISP_ASSIGN(const auto entries, history_.between(fetch_step.from.seq, fetch_step.to.seq));
        for (const LogEntry& entry : entries) {
            if (!entry.commit.makes_state() || !entry.commit.delta) continue;
            WISP_ASSIGN(fs::path path, fetcher_.fetch_surely(*entry.commit.delta));
            deltas.push_back(std::move(path));
        }
        return {};
    }

    Lineage& history_;
    const LogEntry& head_;
    Manifest manifest_;
    const MaintenanceOptions& options_;
    fs::path work_;
    ObjectFetcher fetcher_;
    Uploader uploader_;
    ReplicaRecord at_;
    ReplicaUpdater updater_;
};

Result<CompactReport> compact_once(CommitLog& log, const LogEntry& head,
                                   const MaintenanceOptions& options) {
    CompactReport report;
    WISP_ASSIGN(const Manifest manifest, log.manifest_of(head));
    const StateName& state = head.commit.state;
    const JoinCost before = join_cost(manifest, state, head.commit.floor);
    report.join_bytes_before = report.join_bytes_after = before.bytes;
    report.join_objects_before = report.join_objects_after = before.objects;
    Lineage history(log, head);
    WISP_ASSIGN(const std::vector<Piece> pieces, wanted_pieces(history, manifest));
    const auto is_there = [&](const Piece& piece) {
        return std::ranges::any_of(manifest.merged_deltas, [&](const MergedDelta& merged_delta) {
            return merged_delta.from == piece.from && merged_delta.to == piece.to;
        });
    };
    if (std::ranges::all_of(pieces, is_there)) return report;

    WISP_ASSIGN(const PendingFolder work, PendingFolder::temporary(options.work));
    FolderReplicaOptions folder_options;
    folder_options.threads = options.threads;
    folder_options.durable = false;
    WISP_ASSIGN(const auto replica, open_folder_replica(work.path() / "replica", folder_options));
    WISP_TRY(replica->load());
    Compactor compactor(history, manifest, *replica, options, work.path());
    std::vector<MergedDelta> merged_deltas;
    for (const Piece& piece : pieces) {
        if (is_there(piece)) continue;
        WISP_ASSIGN(auto merged_delta, compactor.merge_piece(piece));
        if (!merged_delta) continue;
        ++report.merged;
        report.merged_bytes += merged_delta->delta.bytes();
        report.spans_states += merged_delta->to.state_index - merged_delta->from.state_index;
        merged_deltas.push_back(std::move(*merged_delta));
    }
    if (merged_deltas.empty()) return report;
    WISP_TRY(append_maintenance(log, CommitKind::kMerge, options,
                                [&](const Commit& newest, Manifest& edited, std::uint64_t& floor) {
                                    for (const MergedDelta& merged_delta : merged_deltas) {
                                        if (merged_delta.from.seq >= floor)
                                            add_merged_delta(edited, merged_delta);
                                    }
                                    const JoinCost after = join_cost(edited, newest.state, floor);
                                    report.join_bytes_after = after.bytes;
                                    report.join_objects_after = after.objects;
                                    return true;
                                }));
    return report;
}

}  // namespace

Result<CompactReport> compact_run(const Location& where, const MaintenanceOptions& options) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(CommitLog log, CommitLog::open(where, options.run));
    // A log that was cut short by a lost commit is not worth the work.
    WISP_ASSIGN(auto newest, log.head_for(options.signer, false));
    const auto compact = [&](const std::optional<LogEntry>& head) -> Result<CompactReport> {
        if (!head || head->commit.state.seq == 0) return CompactReport{};
        return compact_once(log, *head, options);
    };
    return past_retention(log, std::move(newest), compact);
}

}  // namespace wisp
