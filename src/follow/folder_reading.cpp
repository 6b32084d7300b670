#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

#include "base/file.hpp"
#include "base/reader_lock.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/journal_path.hpp"
#include "follow/replica_file.hpp"
#include "wisp/followed_folders.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// The folder that holds weights, and what it remembers of itself.
struct Place {
    fs::path folder;
    fs::path record;
};

Result<Place> find_place(const fs::path& given) {
    std::error_code error;
    fs::path folder = fs::canonical(given, error);
    if (error) return std::unexpected(file_error("read", given, error.value()));
    if (fs::exists(folder / kWispFolder / kSnapshotsName, error)) {
        const fs::path current = folder / kCurrentName;
        folder = fs::canonical(current, error);
        if (error) {
            return fail(ErrorKind::kNotFound,
                        fmt::format("{} holds no step yet; wait for its follower to bring one",
                                    shown(given.string())));
        }
    }
    for (const char* const name : {kSnapshotName, kReplicaName}) {
        const fs::path record = folder / kWispFolder / name;
        if (fs::exists(record, error)) return Place{folder, record};
    }
    return fail(ErrorKind::kInvalid,
                fmt::format("{} is not kept by 'wisp follow' or 'wisp pull', so that there is "
                            "nothing to hold still; check the path",
                            shown(given.string())));
}

/// Under the lock: whether the folder stands at one state.
Result<ReplicaRecord> read_state(const Place& place) {
    WISP_ASSIGN(const ReplicaFile file, read_replica_file(place.record));
    std::error_code error;
    if (!file.incoming.empty() || fs::exists(journal_path(place.folder), error)) {
        return fail(ErrorKind::kConflict,
                    fmt::format("a change of {} was interrupted, and it is between two steps; "
                                "start its follower again, which finishes it",
                                shown(place.folder.string())));
    }
    if (!file.at || file.at->state_seq == 0) {
        return fail(ErrorKind::kNotFound,
                    fmt::format("{} holds no step yet; wait for its follower to bring one",
                                shown(place.folder.string())));
    }
    return *file.at;
}

}  // namespace

struct FolderReading::State {
    fs::path folder;
    FolderLock lock;
    ReplicaRecord at;
};

FolderReading::FolderReading(std::unique_ptr<State> state) : state_(std::move(state)) {}
FolderReading::FolderReading(FolderReading&&) noexcept = default;
FolderReading& FolderReading::operator=(FolderReading&&) noexcept = default;
FolderReading::~FolderReading() = default;

Result<FolderReading> FolderReading::begin(const fs::path& folder, Milliseconds timeout) {
    using std::chrono::steady_clock;
    const auto end = steady_clock::now() + timeout;
    for (;;) {
        WISP_ASSIGN(const Place place, find_place(folder));
        const auto left = std::chrono::duration_cast<Milliseconds>(end - steady_clock::now());
        auto lock = lock_readers(
            place.folder / kWispFolder, LockMode::kShared, std::max(left, Milliseconds(0)),
            fmt::format("{} is being written to for longer than {} ms; try again",
                        shown(folder.string()), timeout.count()));
        const bool is_gone = !lock && lock.error().kind == ErrorKind::kNotFound;
        if (!lock && !is_gone) return std::unexpected(std::move(lock).error());
        // Removed or replaced between the look and the lock: what is there now counts.
        if (is_gone || !lock->holds(place.folder / kWispFolder / kReadersName)) {
            if (stopped() || steady_clock::now() >= end) {
                return fail(ErrorKind::kUnavailable,
                            fmt::format("{} is replaced faster than it can be opened; try again",
                                        shown(folder.string())));
            }
            continue;
        }
        WISP_ASSIGN(ReplicaRecord at, read_state(place));
        return FolderReading(
            std::make_unique<State>(State{place.folder, std::move(*lock), std::move(at)}));
    }
}

const fs::path& FolderReading::folder() const {
    return state_->folder;
}

const ReplicaRecord& FolderReading::at() const {
    return state_->at;
}

void FolderReading::keep_across_exec() const {
    state_->lock.keep_across_exec();
}

}  // namespace wisp
