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
#include "wisp/delta.hpp"
#include "wisp/maintenance.hpp"
#include "wisp/stop.hpp"

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
Result<std::vector<Piece>> wanted_pieces(Lineage& history, const RoadMap& map) {
    std::vector<Piece> pieces;
    if (map.anchors.empty()) return pieces;
    const StateName& now = history.head().commit.state;
    StateName from = map.anchors.back().state;
    if (from.line != now.line) return pieces;
    if (from.seq < history.log().first_seq()) {
        // What a branch took over lies in another log, as roads already.
        WISP_ASSIGN(const LogEntry first, history.at(history.log().first_seq()));
        from = first.commit.state;
    }
    std::uint64_t left = now.count - from.count;
    while (left >= 2) {
        const std::uint64_t size = std::bit_floor(left);
        WISP_ASSIGN(const StateName to, find_state_by_count(history, from.count + size));
        pieces.push_back({from, to});
        from = to;
        left -= size;
    }
    return pieces;
}

class Compactor {
  public:
    Compactor(Lineage& history, RoadMap map, Replica& replica, const UpkeepOptions& options,
              fs::path work)
        : history_(history),
          head_(history.head()),
          map_(std::move(map)),
          options_(options),
          work_(std::move(work)),
          fetcher_(history.log().where(), work_ / "pieces", options.parallel),
          uploader_(history.log().where(), options.parallel, kPartBytes),
          journey_(history.log(), replica, at_,
                   {options.threads, options.parallel, options.base, {}, {}}) {}

    /// Nothing when the piece is a single delta's, or holds no change.
    Result<std::optional<RoadEntry>> merge_piece(const Piece& piece) {
        WISP_TRY(journey_.go(history_, piece.from));
        RouteRequest request{piece.to, head_.commit.floor, piece.from, {}, {}};
        const auto route = plan_route(map_, request);
        if (!route || route->start != Route::Start::kHere) return std::optional<RoadEntry>{};
        std::vector<fs::path> deltas;
        for (const Leg& leg : route->legs) WISP_TRY(fetch_leg(leg, deltas));
        if (deltas.size() < 2) return std::optional<RoadEntry>{};
        const fs::path merged = work_ / "merged.safetensors";
        {
            // merge() wants a checkpoint; the replica's folder is one.
            WISP_ASSIGN(const Checkpoint base, Checkpoint::open(work_ / "replica"));
            DiffOptions merging;
            merging.threads = options_.threads;
            merging.step = piece.to.step;
            merging.progress = options_.progress;
            WISP_TRY(merge(base, deltas, merged, merging));
        }
        const auto name_key = [&](std::string_view hash, PartNumber part) {
            return merged_key({piece.to.step, head_.commit.epoch, hash, part}, piece.from.step);
        };
        WISP_ASSIGN(StoredFile stored, uploader_.upload(merged, "", name_key));
        RoadEntry road{piece.from, piece.to, std::move(stored)};
        add_road(map_, road);
        fetcher_.clear();
        std::error_code ignored;
        fs::remove(merged, ignored);
        return std::optional<RoadEntry>(std::move(road));
    }

  private:
    Result<void> fetch_leg(const Leg& leg, std::vector<fs::path>& deltas) {
        if (leg.road) {
            WISP_ASSIGN(fs::path path, fetcher_.fetch(*leg.road));
            deltas.push_back(std::move(path));
            return {};
        }
        WISP_ASSIGN(const auto entries, history_.between(leg.from.seq, leg.to.seq));
        for (const LogEntry& entry : entries) {
            if (!entry.commit.makes_state() || !entry.commit.delta) continue;
            WISP_ASSIGN(fs::path path, fetcher_.fetch(*entry.commit.delta));
            deltas.push_back(std::move(path));
        }
        return {};
    }

    Lineage& history_;
    const LogEntry& head_;
    RoadMap map_;
    const UpkeepOptions& options_;
    fs::path work_;
    ObjectFetcher fetcher_;
    Uploader uploader_;
    ReplicaRecord at_;
    Journey journey_;
};

Result<CompactReport> compact_once(CommitLog& log, const LogEntry& head,
                                   const UpkeepOptions& options) {
    CompactReport report;
    WISP_ASSIGN(const RoadMap map, log.map_of(head));
    const StateName& state = head.commit.state;
    const JoinCost before = join_cost(map, state, head.commit.floor);
    report.join_bytes_before = report.join_bytes_after = before.bytes;
    report.join_objects_before = report.join_objects_after = before.objects;
    Lineage history(log, head);
    WISP_ASSIGN(const std::vector<Piece> pieces, wanted_pieces(history, map));
    const auto is_there = [&](const Piece& piece) {
        return std::ranges::any_of(map.roads, [&](const RoadEntry& road) {
            return road.from == piece.from && road.to == piece.to;
        });
    };
    if (std::ranges::all_of(pieces, is_there)) return report;

    WISP_ASSIGN(const PendingFolder work, PendingFolder::temporary(options.work));
    FolderReplicaOptions folder_options;
    folder_options.threads = options.threads;
    folder_options.durable = false;
    WISP_ASSIGN(const auto replica, open_folder_replica(work.path() / "replica", folder_options));
    WISP_TRY(replica->load());
    Compactor compactor(history, map, *replica, options, work.path());
    std::vector<RoadEntry> roads;
    for (const Piece& piece : pieces) {
        if (is_there(piece)) continue;
        WISP_ASSIGN(auto road, compactor.merge_piece(piece));
        if (!road) continue;
        ++report.merged;
        report.merged_bytes += road->delta.bytes();
        report.spans_states += road->to.count - road->from.count;
        roads.push_back(std::move(*road));
    }
    if (roads.empty()) return report;
    WISP_TRY(append_upkeep(log, CommitKind::kMerge, options,
                           [&](const Commit& newest, RoadMap& edited, std::uint64_t& floor) {
                               for (const RoadEntry& road : roads) {
                                   if (road.from.seq >= floor) add_road(edited, road);
                               }
                               const JoinCost after = join_cost(edited, newest.state, floor);
                               report.join_bytes_after = after.bytes;
                               report.join_objects_after = after.objects;
                               return true;
                           }));
    return report;
}

}  // namespace

Result<CompactReport> compact_run(const Location& where, const UpkeepOptions& options) {
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
