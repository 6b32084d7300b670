#include "follow/snapshot_folders.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/file.hpp"
#include "base/reader_lock.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBuilding = "building";
constexpr const char* kRemoving = "removing";

Error foreign(const fs::path& path, std::string_view what) {
    return {ErrorKind::kInvalid,
            fmt::format("{} {}; move it away, or name another folder with --into",
                        shown(path.string()), what)};
}

Result<void> sync_tree(const fs::path& folder) {
    std::error_code error;
    for (const auto& item : fs::directory_iterator(folder, error)) {
        if (item.is_directory()) {
            WISP_TRY(sync_tree(item.path()));
            continue;
        }
        const FileHandle file(::open(item.path().c_str(), O_RDONLY | O_CLOEXEC));
        if (file.get() < 0) return std::unexpected(file_error("open", item.path(), errno));
        WISP_TRY(sync_file(file, item.path()));
    }
    if (error) return std::unexpected(file_error("list", folder, error.value()));
    return sync_folder(folder);
}

}  // namespace

Result<fs::path> SnapshotFolders::make_building() const {
    const fs::path folder = scratch() / kBuilding;
    std::error_code error;
    fs::remove_all(folder, error);
    fs::create_directories(folder, error);
    if (error) return std::unexpected(file_error("create", folder, error.value()));
    return folder;
}

Result<void> SnapshotFolders::refuse_foreign() const {
    std::error_code error;
    const fs::path current = root() / kCurrentName;
    const fs::file_status link = fs::symlink_status(current, error);
    if (fs::exists(link) && !fs::is_symlink(link)) {
        return std::unexpected(foreign(current, "is in the way of the link to the newest step"));
    }
    if (fs::exists(root() / kWispFolder / kSnapshotsName, error)) return {};
    if (fs::exists(root() / kWispFolder / kReplicaName, error)) {
        return std::unexpected(foreign(root(), "is itself kept at the newest step"));
    }
    if (fs::exists(link)) {
        return std::unexpected(foreign(current, "is a link that wisp did not make"));
    }
    for (const auto& item : fs::directory_iterator(root(), error)) {
        const std::string name = item.path().filename().string();
        if (where_.step_of(name)) {
            return std::unexpected(foreign(item.path(), "was not made by wisp"));
        }
        if (name.ends_with(".safetensors")) {
            return std::unexpected(
                foreign(root(), "holds a checkpoint that wisp did not put there"));
        }
    }
    return {};
}

void SnapshotFolders::clear_leftovers() const {
    std::error_code ignored;
    for (const char* const name : {kBuilding, "incoming"}) {
        fs::remove_all(scratch() / name, ignored);
    }
    fs::remove_all(scratch() / kRemoving, ignored);
    fs::remove(scratch() / kCurrentName, ignored);
}

Result<void> SnapshotFolders::seal(const fs::path& built, const ReplicaFile& what) const {
    const fs::path own = built / kWispFolder;
    std::error_code error;
    fs::create_directory(own, error);
    if (error) return std::unexpected(file_error("create", own, error.value()));
    WISP_TRY(save_replica_file(own / kSnapshotName, what, false));
    // Made here: readers may lack the right to.
    WISP_TRY(lock_readers(own, LockMode::kExclusive, Milliseconds(0), "a new folder is in use"));
    return sync_tree(built);
}

Result<ReplicaFile> SnapshotFolders::read(const std::string& name) const {
    WISP_ASSIGN(ReplicaFile file, read_replica_file(folder(name) / kWispFolder / kSnapshotName));
    if (!file.at) {
        return fail(ErrorKind::kNotFound,
                    fmt::format("{} is no step of wisp's", shown(folder(name).string())));
    }
    return file;
}

/// Nothing but what was put there, and empty files: markers of the folder's users.
Result<void> SnapshotFolders::refuse_changed(const std::string& name) const {
    const fs::path path = folder(name);
    std::error_code error;
    if (!fs::is_directory(fs::symlink_status(path, error))) {
        return std::unexpected(foreign(path, "was not made by wisp"));
    }
    const auto listed = read(name);
    if (!listed) return std::unexpected(foreign(path, "was not made by wisp"));
    for (const auto& item : fs::directory_iterator(path, error)) {
        const std::string entry = item.path().filename().string();
        if (entry == kWispFolder ||
            std::ranges::find(listed->files, entry) != listed->files.end()) {
            continue;
        }
        std::error_code unread;
        const bool is_empty = item.is_regular_file(unread) && item.file_size(unread) == 0;
        if (is_empty && !unread) continue;
        return std::unexpected(foreign(
            path, fmt::format("also holds {}, which wisp did not put there", shown(entry))));
    }
    if (error) return std::unexpected(file_error("list", path, error.value()));
    return {};
}

Result<std::optional<FolderLock>> SnapshotFolders::claim(const std::string& name,
                                                         const std::vector<std::string>& made,
                                                         Milliseconds timeout) const {
    const fs::path path = folder(name);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return std::optional<FolderLock>{};
    if (std::ranges::find(made, name) == made.end()) {
        return std::unexpected(foreign(path, "is there already and was not made by wisp"));
    }
    WISP_TRY(refuse_changed(name));
    WISP_ASSIGN(FolderLock lock,
                lock_readers(path / kWispFolder, LockMode::kExclusive, timeout,
                             fmt::format("readers have held {} for {} ms, and other weights for "
                                         "that step wait for them",
                                         shown(path.string()), timeout.count())));
    return std::optional(std::move(lock));
}

Result<void> SnapshotFolders::put(const fs::path& built, const std::string& name) const {
    const fs::path path = folder(name);
    std::error_code error;
    if (fs::exists(path, error)) {
        // At once, where that can be done: then `current` never leads nowhere.
        if (::renameat2(AT_FDCWD, built.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
            fs::remove_all(built, error);
            return sync_folder(root());
        }
        const fs::path aside = scratch() / kRemoving;
        fs::remove_all(aside, error);
        fs::rename(path, aside, error);
        if (error) return std::unexpected(file_error("move", path, error.value()));
    }
    fs::rename(built, path, error);
    if (error) return std::unexpected(file_error("put in place", path, error.value()));
    return sync_folder(root());
}

Result<void> SnapshotFolders::mark(const std::string& name, const std::string& marker) const {
    const fs::path path = folder(name) / marker;
    const FileHandle file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (file.get() < 0) return std::unexpected(file_error("create", path, errno));
    return sync_folder(folder(name));
}

Result<void> SnapshotFolders::flip(const std::string& name) const {
    if (current() == name) return {};
    const fs::path next = scratch() / kCurrentName;
    std::error_code error;
    fs::remove(next, error);
    fs::create_symlink(name, next, error);
    if (error) return std::unexpected(file_error("link", next, error.value()));
    fs::rename(next, root() / kCurrentName, error);
    if (error) {
        return std::unexpected(file_error("flip", root() / kCurrentName, error.value()));
    }
    return sync_folder(root());
}

std::string SnapshotFolders::current() const {
    std::error_code error;
    const fs::path target = fs::read_symlink(root() / kCurrentName, error);
    return error ? std::string() : target.string();
}

Result<void> SnapshotFolders::remove(const std::string& name) const {
    const fs::path path = folder(name);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return {};
    WISP_TRY(refuse_changed(name));
    WISP_ASSIGN(
        const FolderLock lock,
        FolderLock::wait(path / kWispFolder / kReadersName, LockMode::kExclusive, Milliseconds(0),
                         fmt::format("{} is being read", shown(path.string()))));
    // Away at once, so that nobody finds half of it.
    const fs::path aside = scratch() / kRemoving;
    fs::remove_all(aside, error);
    fs::rename(path, aside, error);
    if (error) return std::unexpected(file_error("remove", path, error.value()));
    fs::remove_all(aside, error);
    if (error) return std::unexpected(file_error("remove", aside, error.value()));
    return {};
}

}  // namespace wisp
