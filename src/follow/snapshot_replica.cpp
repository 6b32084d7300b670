#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/file.hpp"
#include "base/folder_lock.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/file_name.hpp"
#include "delta/deliver_changes.hpp"
#include "follow/snapshot_folders.hpp"
#include "follow/snapshot_writer.hpp"
#include "wisp/followed_folders.hpp"

// What lies in the root beside the folders of steps:
//   current                the link to the newest
//   .wisp/snapshots.json   where the replica stands, and which folders it made
//   .wisp/lock             held while a process uses the root
//   .wisp/scratch/         fetched files; the step being put together; the one being removed
// and in the folder of a step .wisp/snapshot.json (what it is), .wisp/readers and turn.
namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kFewest = 2;

class SnapshotReplica : public Replica {
  public:
    SnapshotReplica(const StepPattern& where, SnapshotReplicaOptions options, FolderLock lock)
        : folders_(where),
          label_(where.text()),
          options_(std::move(options)),
          lock_(std::move(lock)) {}

    std::string label() const override { return label_; }
    const Weights* weights() const override {
        return checkpoint_ && !doubtful_ ? &*checkpoint_ : nullptr;
    }
    bool in_doubt() const override { return doubtful_; }
    fs::path scratch() const override { return folders_.scratch(); }

    Result<std::optional<ReplicaRecord>> load() override {
        doubtful_ = true;
        checkpoint_.reset();
        WISP_ASSIGN(book_, read_replica_file(book_path()));
        if (book_.at || book_.next) WISP_TRY(sync_folder(book_path().parent_path()));
        folders_.clear_leftovers();
        if (book_.next) WISP_TRY(finish_or_drop());
        if (book_.at && book_.at->state_seq != 0) WISP_TRY(stand_on_whole_one());
        doubtful_ = false;
        return book_.at;
    }

    Result<void> save(const ReplicaRecord& record) override {
        WISP_TRY(require_certainty());
        const bool other_step =
            checkpoint_ && book_.at && record.state_seq != 0 && record.step != book_.at->step;
        if (other_step) return apply_none(record);
        ReplicaFile before = book_;
        book_.at = record;
        auto saved = write_book();
        if (!saved) book_ = std::move(before);
        return saved;
    }

    Result<ApplyReport> apply(const std::vector<fs::path>& deltas,
                              const ReplicaRecord& after) override {
        WISP_TRY(require_certainty());
        if (!checkpoint_ || !book_.at) {
            return fail(ErrorKind::kWrongBase, fmt::format("{} holds no state yet", label()));
        }
        auto report = build_next(deltas, after);
        // On a full disk above all, what failed must not lie about.
        if (!report && !doubtful_) folders_.clear_leftovers();
        return report;
    }

    Result<void> adopt(const fs::path& folder, const ReplicaRecord& after) override {
        WISP_TRY(require_certainty());
        std::vector<std::string> names;
        std::error_code error;
        // Who published it may have had a marker of that name, too.
        if (!options_.marker.empty()) fs::remove(folder / options_.marker, error);
        for (const auto& item : fs::directory_iterator(folder, error)) {
            names.push_back(item.path().filename().string());
        }
        if (error) return std::unexpected(file_error("list", folder, error.value()));
        std::ranges::sort(names);
        return put_in_place(folder, after, names);
    }

    Result<void> discard() override {
        WISP_TRY(require_certainty());
        return forget();
    }

  private:
    fs::path book_path() const { return folders_.root() / kWispFolder / kSnapshotsName; }
    Result<void> write_book() { return save_replica_file(book_path(), book_, true); }

    Result<void> require_certainty() const {
        if (!doubtful_) return {};
        return fail(
            ErrorKind::kUnavailable,
            fmt::format("a change of {} failed half-way; open it again to go on", shown(label())));
    }

    Result<void> forget() {
        checkpoint_.reset();
        book_.next.reset();
        // How far the log was followed is kept: it is what reveals a rollback.
        if (book_.at) forget_state(*book_.at);
        return write_book();
    }

    Result<ApplyReport> build_next(const std::vector<fs::path>& deltas,
                                   const ReplicaRecord& after) {
        WISP_ASSIGN(const fs::path built, folders_.make_building());
        SnapshotWriter writer(*checkpoint_, built);
        WISP_ASSIGN(const ApplyReport report,
                    deliver_changes(*checkpoint_, book_.at->state, deltas, options_.threads,
                                    {[&](const MovedBlock& block) { return writer.take(block); }},
                                    after.state));
        WISP_TRY(writer.finish(files_));
        WISP_TRY(put_in_place(built, after, files_));
        return report;
    }

    /// The same weights under the number of another step.
    Result<void> apply_none(const ReplicaRecord& after) {
        WISP_ASSIGN(const fs::path built, folders_.make_building());
        WISP_TRY(SnapshotWriter(*checkpoint_, built).finish(files_));
        return put_in_place(built, after, files_);
    }

    Result<void> put_in_place(const fs::path& built, const ReplicaRecord& after,
                              const std::vector<std::string>& files) {
        const std::string name = folders_.name_of(after.step);
        ReplicaFile what;
        what.at = after;
        what.files = files;
        WISP_TRY(folders_.seal(built, what));
        WISP_ASSIGN(const auto claimed, folders_.claim(name, book_.files, options_.reader_timeout));
        doubtful_ = true;
        book_.next = after;
        WISP_TRY(write_book());
        WISP_TRY(folders_.put(built, name));
        WISP_TRY(finish(name, after));
        WISP_TRY(open(name, what));
        doubtful_ = false;
        remove_old();
        return {};
    }

    /// What is left to do when the folder of a step is in its place.
    Result<void> finish(const std::string& name, const ReplicaRecord& after) {
        if (!options_.marker.empty()) WISP_TRY(folders_.mark(name, options_.marker));
        WISP_TRY(folders_.flip(name));
        std::erase(book_.files, name);
        book_.files.push_back(name);
        book_.at = after;
        book_.next.reset();
        return write_book();
    }

    /// The folder's own word tells whether the rename was done.
    Result<void> finish_or_drop() {
        const ReplicaRecord next = *book_.next;
        const std::string name = folders_.name_of(next.step);
        const auto found = folders_.read(name);
        if (found && found->at == next) return finish(name, next);
        book_.next.reset();
        return write_book();
    }

    Result<void> open(const std::string& name, const ReplicaFile& what) {
        WISP_ASSIGN(Checkpoint opened, Checkpoint::open(folders_.folder(name)));
        checkpoint_.emplace(std::move(opened));
        files_ = what.files;
        return {};
    }

    /// The one it stands at; if that is damaged or gone, the newest that is whole.
    Result<void> stand_on_whole_one() {
        std::vector<std::string> names(book_.files.rbegin(), book_.files.rend());
        for (const std::string& name : names) {
            const auto what = folders_.read(name);
            if (!what || what->at->run != book_.at->run || what->at->state_seq == 0) continue;
            const bool is_here = what->at->step == book_.at->step;
            if (is_here && what->at->state != book_.at->state) continue;
            if (!open(name, *what)) continue;
            WISP_ASSIGN(const StateDigest state,
                        digest_of(*checkpoint_, options_.threads, options_.progress));
            if (state != what->at->state) {
                checkpoint_.reset();
                (void)folders_.remove(name);
                continue;
            }
            if (!options_.marker.empty()) WISP_TRY(folders_.mark(name, options_.marker));
            WISP_TRY(folders_.flip(name));
            if (is_here) return {};
            // How far the log was followed is not forgotten with an older state.
            stand_at_state_of(*what->at);
            return write_book();
        }
        return forget();
    }

    void stand_at_state_of(const ReplicaRecord& older) {
        ReplicaRecord at = older;
        at.epoch = book_.at->epoch;
        at.seq = book_.at->seq;
        at.commit_hash = book_.at->commit_hash;
        at.certificate_serial = book_.at->certificate_serial;
        book_.at = at;
    }

    /// Never fails: a step that stays too long is no reason not to go on.
    void remove_old() {
        if (book_.files.size() <= options_.keep) return;
        const std::string current = folders_.current();
        std::vector<std::string> left;
        const std::size_t old = book_.files.size() - options_.keep;
        for (std::size_t i = 0; i < book_.files.size(); ++i) {
            const std::string& name = book_.files[i];
            if (i < old && name != current && is_removed(name)) continue;
            left.push_back(name);
        }
        if (left.size() == book_.files.size()) return;
        ReplicaFile before = book_;
        book_.files = std::move(left);
        if (!write_book()) book_ = std::move(before);
    }

    bool is_removed(const std::string& name) {
        const auto removed = folders_.remove(name);
        if (removed) return true;
        if (options_.on_kept && told_.insert(name).second) {
            options_.on_kept(fmt::format("{} is older than the {} to keep, but stays: {}", name,
                                         options_.keep, removed.error().text));
        }
        return false;
    }

    SnapshotFolders folders_;
    std::string label_;
    SnapshotReplicaOptions options_;
    FolderLock lock_;
    ReplicaFile book_;  // its `files` are the folders made here, oldest first
    std::optional<Checkpoint> checkpoint_;
    std::vector<std::string> files_;  // of the folder that `checkpoint_` is
    std::set<std::string> told_;      // folders that on_kept was told of
    bool doubtful_ = false;           // see in_doubt()
};

Result<void> check_usage(const StepPattern& where, const SnapshotReplicaOptions& options) {
    if (options.keep < kFewest) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("at least {} steps have to be kept: a reader needs the time to "
                                "open the one that it was told of",
                                kFewest));
    }
    if (!where.below().empty() || !is_file_name(where.name_of(0))) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} does not end in a plain name with the step in it, like "
                                "'models/step_{{step}}'",
                                shown(where.text())));
    }
    const std::string& marker = options.marker;
    if (marker.empty()) return {};
    if (is_file_name(marker) && !marker.ends_with(".safetensors") && !marker.ends_with(".json")) {
        return {};
    }
    return fail(
        ErrorKind::kInvalid,
        fmt::format("a marker cannot be called {}; give a plain name, like STABLE", shown(marker)));
}

}  // namespace

Result<std::unique_ptr<Replica>> open_snapshot_replica(const StepPattern& where,
                                                       const SnapshotReplicaOptions& options) {
    WISP_TRY(check_usage(where, options));
    WISP_TRY(SnapshotFolders(where).refuse_foreign());
    const fs::path own = where.root() / kWispFolder;
    std::error_code error;
    fs::create_directories(own / "scratch", error);
    if (error) return std::unexpected(file_error("create", own, error.value()));
    WISP_ASSIGN(FolderLock lock,
                FolderLock::take(own / "lock", fmt::format("{} is in use by another process; give "
                                                           "each its own folder",
                                                           shown(where.root().string()))));
    if (!fs::exists(own / kSnapshotsName, error)) {
        // From here on folders with such names are known to be ours.
        WISP_TRY(save_replica_file(own / kSnapshotsName, {}, true));
    }
    return std::make_unique<SnapshotReplica>(where, options, std::move(lock));
}

}  // namespace wisp
