#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/folder_lock.hpp"
#include "base/limits.hpp"
#include "base/paths.hpp"
#include "base/reader_lock.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/journal_path.hpp"
#include "delta/deliver_changes.hpp"
#include "follow/replica_file.hpp"
#include "log/run_keys.hpp"
#include "wisp/replica.hpp"

// What lies in a replica's folder beside the checkpoint:
//   .wisp/replica.json   where it stands (follow/replica_file.hpp)
//   .wisp/lock           held while a process uses the folder
//   .wisp/readers, turn  held by those who read the weights, and while they change
//   .wisp/scratch/       fetched files; a checkpoint being put together
namespace wisp {
namespace fs = std::filesystem;
namespace {

class FolderReplica : public Replica {
  public:
    FolderReplica(fs::path folder, FolderReplicaOptions options, FolderLock lock)
        : folder_(std::move(folder)), options_(std::move(options)), lock_(std::move(lock)) {}

    std::string label() const override { return folder_.string(); }
    const Weights* weights() const override {
        return checkpoint_ && !doubtful_ ? &*checkpoint_ : nullptr;
    }
    bool in_doubt() const override { return doubtful_; }
    fs::path scratch() const override { return folder_ / kWispFolder / "scratch"; }

    Result<std::optional<ReplicaRecord>> load() override {
        doubtful_ = true;
        checkpoint_.reset();
        file_ = {};
        WISP_TRY(prove());
        doubtful_ = false;
        return file_.at;
    }

    Result<void> save(const ReplicaRecord& record) override {
        WISP_TRY(require_certainty());
        ReplicaFile before = file_;
        auto saved = keep(record);
        if (!saved) file_ = std::move(before);
        return saved;
    }

    Result<ApplyReport> apply(const std::vector<fs::path>& deltas,
                              const ReplicaRecord& after) override {
        WISP_TRY(require_certainty());
        if (!checkpoint_ || !file_.at) {
            return fail(ErrorKind::kWrongBase, fmt::format("{} holds no state yet", label()));
        }
        WISP_ASSIGN(const auto alone, keep_readers_out());
        doubtful_ = true;
        auto report = move_by(deltas, after);
        // These two are found before the first weight changes.
        doubtful_ = !report && report.error().kind != ErrorKind::kWrongBase &&
                    report.error().kind != ErrorKind::kCorrupt;
        return report;
    }

    Result<void> overwrite(std::span<const MovedBlock> changes,
                           const ReplicaRecord& after) override {
        if (options_.durable) return Replica::overwrite(changes, after);
        WISP_TRY(require_certainty());
        doubtful_ = true;
        file_.next = after;
        WISP_TRY(write_file());
        WISP_TRY(patch_unguarded(*checkpoint_, changes));
        WISP_TRY(keep(after));
        doubtful_ = false;
        return {};
    }

    Result<void> adopt(const fs::path& folder, const ReplicaRecord& after) override {
        WISP_TRY(require_certainty());
        WISP_ASSIGN(const auto alone, keep_readers_out());
        checkpoint_.reset();
        std::vector<std::string> names;
        std::error_code error;
        for (const auto& item : fs::directory_iterator(folder, error)) {
            names.push_back(item.path().filename().string());
        }
        if (error) return std::unexpected(file_error("list", folder, error.value()));
        std::ranges::sort(names);
        if (options_.durable) {
            for (const std::string& name : names) {
                WISP_ASSIGN(const FileHandle handle, open_for_update(folder / name));
                WISP_TRY(sync_file(handle, folder / name));
            }
            WISP_TRY(sync_folder(folder));
        }
        doubtful_ = true;
        file_.next = after;
        file_.incoming = folder.filename().string();
        file_.moving = std::move(names);
        WISP_TRY(write_file());
        WISP_TRY(finish_moving());
        WISP_ASSIGN(Checkpoint opened, Checkpoint::open(folder_));
        checkpoint_.emplace(std::move(opened));
        doubtful_ = false;
        return {};
    }

    Result<void> discard() override {
        WISP_TRY(require_certainty());
        return forget();
    }

  private:
    Result<void> require_certainty() const {
        if (!doubtful_) return {};
        return fail(
            ErrorKind::kUnavailable,
            fmt::format("a change of {} failed half-way; open it again to go on", shown(label())));
    }

    /// Finishes what was interrupted, and compares the weights with the record.
    Result<void> prove() {
        WISP_TRY(read_file());
        // A record whose name could not be synced may be gone with the power; what is acted on is
        // not.
        if (options_.durable && (file_.at || file_.next)) {
            WISP_TRY(sync_folder(file_path().parent_path()));
        }
        std::error_code error;
        std::optional<FolderLock> alone;
        if (!file_.incoming.empty() || fs::exists(journal_path(folder_), error)) {
            WISP_ASSIGN(alone, keep_readers_out());
        }
        if (!file_.incoming.empty()) WISP_TRY(finish_moving());
        if (!file_.at || file_.at->state_seq == 0) return {};
        if (options_.durable) {
            // A damaged checkpoint is not the end: the follower replaces it.
            if (const auto recovered = recover(folder_);
                !recovered && recovered.error().kind != ErrorKind::kCorrupt &&
                recovered.error().kind != ErrorKind::kNotFound) {
                return std::unexpected(recovered.error());
            }
        }
        auto opened = Checkpoint::open(folder_, PendingApply::kAllow);
        if (!opened) return forget();
        checkpoint_.emplace(std::move(*opened));
        WISP_ASSIGN(const StateDigest state,
                    digest_of(*checkpoint_, options_.threads, options_.progress));
        if (file_.next && file_.next->state == state) {
            file_.at = std::exchange(file_.next, std::nullopt);
            return write_file();
        }
        return file_.at->state == state ? Result<void>{} : forget();
    }

    Result<void> keep(const ReplicaRecord& record) {
        file_.at = record;
        file_.next.reset();
        return write_file();
    }

    Result<void> forget() {
        checkpoint_.reset();
        file_.next.reset();
        // How far the log was followed is kept: it is what reveals a rollback.
        if (file_.at) forget_state(*file_.at);
        return write_file();
    }

    Result<ApplyReport> move_by(const std::vector<fs::path>& deltas, const ReplicaRecord& after) {
        file_.next = after;
        WISP_TRY(write_file());
        // A cache is proven before each use, so it needs neither journal nor sync.
        auto report = options_.durable ? apply_durably(deltas)
                                       : patch_unguarded(*checkpoint_, file_.at->state, deltas,
                                                         options_.threads, after.state);
        if (!report) return report;
        if (report->result_proven && report->result != after.state) {
            return fail(ErrorKind::kInternal,
                        "the deltas lead to another state than their commit; report this as a bug");
        }
        WISP_TRY(keep(after));
        return report;
    }

    fs::path file_path() const { return folder_ / kWispFolder / kReplicaName; }

    Result<void> read_file() {
        WISP_ASSIGN(file_, read_replica_file(file_path()));
        return {};
    }

    Result<void> write_file() { return save_replica_file(file_path(), file_, options_.durable); }

    /// Readers are kept out while the folder changes. A cache has none.
    Result<std::optional<FolderLock>> keep_readers_out() const {
        if (!options_.durable) return std::optional<FolderLock>{};
        WISP_ASSIGN(
            FolderLock lock,
            lock_readers(folder_ / kWispFolder, LockMode::kExclusive, options_.reader_timeout,
                         fmt::format("readers have held {} for {} ms ('wisp read' or "
                                     "wisp.reading), and the next step waits for them; "
                                     "'fuser -v {}' tells who they are",
                                     shown(label()), options_.reader_timeout.count(),
                                     shown((folder_ / kWispFolder / kReadersName).string()))));
        return std::optional(std::move(lock));
    }

    /// Rolls a change of checkpoint forward, however often it was interrupted.
    Result<void> finish_moving() {
        const fs::path from = scratch() / file_.incoming;
        std::error_code error;
        for (const std::string& name : file_.moving) {
            if (!fs::exists(from / name, error)) continue;  // moved before
            fs::rename(from / name, folder_ / name, error);
            if (error) return std::unexpected(file_error("replace", folder_ / name, error.value()));
        }
        // Shards of the state before that the new one does not have would confuse a loader.
        for (const std::string& name : file_.files) {
            if (!std::ranges::binary_search(file_.moving, name)) fs::remove(folder_ / name, error);
        }
        if (options_.durable) WISP_TRY(sync_folder(folder_));
        fs::remove_all(from, error);
        fs::remove(journal_path(folder_), error);
        file_.files = std::exchange(file_.moving, {});
        file_.incoming.clear();
        file_.at = std::exchange(file_.next, std::nullopt);
        return write_file();
    }

    Result<ApplyReport> apply_durably(const std::vector<fs::path>& deltas) {
        ApplyOptions options;
        options.threads = options_.threads;
        options.touched_only = true;
        options.progress = options_.progress;
        return apply_in_place(folder_, deltas, options);
    }

    fs::path folder_;
    FolderReplicaOptions options_;
    FolderLock lock_;
    ReplicaFile file_;
    std::optional<Checkpoint> checkpoint_;
    bool doubtful_ = false;  // see in_doubt()
};

/// A checkpoint that somebody else put there must not be overwritten.
Result<void> refuse_foreign_checkpoint(const fs::path& folder) {
    std::error_code error;
    if (fs::exists(folder / kWispFolder / kReplicaName, error)) return {};
    if (fs::exists(folder / kWispFolder / kSnapshotsName, error)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} holds a folder for each step; name them with {{step}}, or "
                                "another folder",
                                shown(folder.string())));
    }
    for (const auto& item : fs::directory_iterator(folder, error)) {
        if (item.path().extension() != ".safetensors") continue;
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} holds a checkpoint that wisp did not put there; name a new "
                                "folder, and this one as the base",
                                shown(folder.string())));
    }
    return {};
}

}  // namespace

Result<void> Replica::overwrite(std::span<const MovedBlock>, const ReplicaRecord&) {
    return fail(ErrorKind::kUnsupported, fmt::format("{} takes deltas only", shown(label())));
}

Result<std::unique_ptr<Replica>> open_folder_replica(const fs::path& folder,
                                                     const FolderReplicaOptions& options) {
    WISP_TRY(refuse_foreign_checkpoint(folder));
    std::error_code error;
    fs::create_directories(folder / kWispFolder / "scratch", error);
    if (error) return std::unexpected(file_error("create", folder, error.value()));
    WISP_ASSIGN(
        FolderLock lock,
        FolderLock::take(folder / kWispFolder / "lock",
                         fmt::format("{} is in use by another process; give each its own folder",
                                     shown(folder.string()))));
    return std::make_unique<FolderReplica>(folder, options, std::move(lock));
}

}  // namespace wisp
