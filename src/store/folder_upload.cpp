#include "store/folder_upload.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/random.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;

namespace {

constexpr int kNameTries = 100;

fs::path temporary_name(const fs::path& folder) {
    return folder / fmt::format("{}{:016x}", kTemporaryPrefix, fresh_seed());
}

/// Over NFS a repeated request can answer EEXIST to the link it made itself.
bool is_same_file(const FileHandle& file, const fs::path& path) {
    struct stat ours = {};
    struct stat theirs = {};
    return ::fstat(file.get(), &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

Error no_hard_links(const fs::path& path) {
    return {ErrorKind::kIncapable,
            fmt::format("the file system of {} has no hard links, without which two writers "
                        "cannot be kept apart; use a folder on another one",
                        shown(path.string()))};
}

bool is_folder(const fs::path& path) {
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

Result<FolderUpload> FolderUpload::start(const fs::path& folder) {
    FolderUpload upload(folder);
    upload.handle_ = FileHandle(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
    if (upload.handle_.get() >= 0) return upload;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
        return std::unexpected(file_error("write in", folder, errno));
    }
    for (int attempt = 0; attempt < kNameTries; ++attempt) {
        const fs::path name = temporary_name(folder);
        upload.handle_ =
            FileHandle(::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
        if (upload.handle_.get() >= 0) {
            upload.temporary_ = name;
            return upload;
        }
        if (errno != EEXIST) break;
    }
    return std::unexpected(file_error("write in", folder, errno));
}

FolderUpload::FolderUpload(FolderUpload&& other) noexcept
    : folder_(std::move(other.folder_)),
      handle_(std::move(other.handle_)),
      temporary_(std::exchange(other.temporary_, {})) {}

FolderUpload::~FolderUpload() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> FolderUpload::fill(std::span<const std::byte> bytes) {
    WISP_TRY(write_at(handle_, 0, bytes, folder_));
    return sync_file(handle_, folder_);
}

int FolderUpload::link_to(const fs::path& name) const {
    const std::string unnamed = "/proc/self/fd/" + std::to_string(handle_.get());
    const int code = temporary_.empty() ? ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD,
                                                   name.c_str(), AT_SYMLINK_FOLLOW)
                                        : ::link(temporary_.c_str(), name.c_str());
    return code == 0 ? 0 : errno;
}

Result<void> FolderUpload::give_temporary_name() {
    int error_number = EEXIST;
    for (int attempt = 0; attempt < kNameTries && error_number == EEXIST; ++attempt) {
        const fs::path name = temporary_name(folder_);
        error_number = link_to(name);
        if (error_number == 0) {
            temporary_ = name;
            return {};
        }
    }
    return std::unexpected(file_error("write in", folder_, error_number));
}

Result<void> FolderUpload::replace(const fs::path& final_path) {
    // link(2) cannot replace a file, rename(2) can: an unnamed file needs a name in between.
    if (temporary_.empty()) WISP_TRY(give_temporary_name());
    if (::rename(temporary_.c_str(), final_path.c_str()) != 0) {
        return std::unexpected(file_error("write", final_path, errno));
    }
    temporary_.clear();
    return sync_folder(folder_);
}

Result<Created> FolderUpload::link_new(const fs::path& final_path) {
    int error_number = link_to(final_path);
    if (error_number == EEXIST && is_same_file(handle_, final_path)) error_number = 0;
    // FAT and some network file systems; our own file cannot be refused for its owner.
    if (error_number == EPERM || error_number == EOPNOTSUPP || error_number == ENOSYS) {
        return std::unexpected(no_hard_links(folder_));
    }
    if (error_number != 0 && error_number != EEXIST) {
        return std::unexpected(file_error("write", final_path, error_number));
    }
    if (error_number == EEXIST && is_folder(final_path)) {
        return std::unexpected(file_error("write", final_path, EISDIR));
    }
    // The loser syncs too: what it was told is there must outlive a crash before it acts on it.
    WISP_TRY(sync_folder(folder_));
    return error_number == 0 ? Created::kNew : Created::kAlreadyThere;
}

Result<void> make_folders(const fs::path& folder) {
    if (is_folder(folder)) return {};
    const fs::path parent = folder_of(folder);
    if (parent != folder) WISP_TRY(make_folders(parent));
    if (::mkdir(folder.c_str(), 0777) != 0) {
        const int error_number = errno;
        if (error_number == ENOTDIR || (error_number == EEXIST && !is_folder(folder))) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("cannot make the folder {}: there is a file in its place; "
                                    "choose another name",
                                    shown(folder.string())));
        }
        if (error_number != EEXIST) {
            return std::unexpected(file_error("make the folder", folder, error_number));
        }
    }
    return sync_folder(parent);
}

}  // namespace wisp
