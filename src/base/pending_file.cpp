#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/file.hpp"
#include "base/random.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;

namespace {

constexpr int kNameAttempts = 100;

/// A name beside `final_path` that hardly anybody else has.
std::string fresh_name(const fs::path& final_path) {
    // In the same folder, so that the rename stays inside one file system.
    const std::string name =
        fmt::format(".{}.{:06x}", final_path.filename().string(), fresh_seed() & 0xFF'FFFF);
    return (folder_of(final_path) / name).string();
}

}  // namespace

Result<PendingFile> PendingFile::create(const fs::path& final_path, Until until) {
    std::error_code ignored;
    if (final_path.filename().empty() || fs::is_directory(final_path, ignored)) {
        return std::unexpected(file_error("write", final_path, EISDIR));
    }
    PendingFile pending;
    pending.final_ = final_path;
    if (until == Until::kUnnamed) {
        pending.handle_ =
            FileHandle(::open(folder_of(final_path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
        if (pending.handle_.get() >= 0) return pending;
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
            return std::unexpected(file_error("create", final_path, errno));
        }
    }
    // Not mkostemp, which makes private files: a finished one is as readable as any the user
    // creates, and the mask of that can be asked for only by taking it away from all threads.
    for (int attempt = 0;; ++attempt) {
        const std::string name = fresh_name(final_path);
        pending.handle_ =
            FileHandle(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (pending.handle_.get() >= 0) {
            pending.temporary_ = name;
            return pending;
        }
        if (errno != EEXIST || attempt == kNameAttempts) {
            return std::unexpected(file_error("create", final_path, errno));
        }
    }
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : handle_(std::move(other.handle_)),
      temporary_(std::exchange(other.temporary_, {})),
      final_(std::move(other.final_)),
      size_bytes_(other.size_bytes_) {}

PendingFile& PendingFile::operator=(PendingFile&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(temporary_, other.temporary_);
    std::swap(final_, other.final_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
}

PendingFile::~PendingFile() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

/// link(2) cannot replace a file, rename(2) can: an unnamed file needs a name in between.
Result<void> PendingFile::give_temporary_name() {
    const std::string open_file = "/proc/self/fd/" + std::to_string(handle_.get());
    for (int attempt = 0;; ++attempt) {
        const std::string name = fresh_name(final_);
        if (::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
            temporary_ = name;
            return {};
        }
        if (errno != EEXIST || attempt == kNameAttempts) {
            return std::unexpected(file_error("name", final_, errno));
        }
    }
}

Result<void> PendingFile::append(std::span<const std::byte> bytes) {
    WISP_TRY(write_at(handle_, size_bytes_, bytes, final_));
    size_bytes_ += bytes.size();
    return {};
}

Result<void> PendingFile::reserve(std::uint64_t bytes) {
    if (bytes == 0) return {};
    const int code = ::posix_fallocate(handle_.get(), 0, static_cast<off_t>(bytes));
    // A file system that cannot reserve will say so when written to.
    if (code != 0 && code != EOPNOTSUPP && code != EINVAL) {
        return std::unexpected(file_error("reserve room for", final_, code));
    }
    return {};
}

Result<void> PendingFile::commit() {
    WISP_TRY(sync_file(handle_, final_));
    WISP_TRY(commit_unsynced());
    return sync_folder(folder_of(final_));
}

Result<void> PendingFile::commit_unsynced() {
    if (temporary_.empty()) WISP_TRY(give_temporary_name());
    if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
        return std::unexpected(file_error("rename to", final_, errno));
    }
    temporary_.clear();
    return {};
}

}  // namespace wisp
