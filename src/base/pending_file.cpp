#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/file.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;

Result<PendingFile> PendingFile::create(const fs::path& final_path) {
    std::error_code ignored;
    if (final_path.filename().empty() || fs::is_directory(final_path, ignored)) {
        return std::unexpected(file_error("write", final_path, EISDIR));
    }
    // In the same folder, so that the rename stays inside one file system.
    const fs::path folder = folder_of(final_path);
    std::string name = (folder / ("." + final_path.filename().string() + ".XXXXXX")).string();
    PendingFile pending;
    pending.handle_ = FileHandle(::mkostemp(name.data(), O_CLOEXEC));
    if (pending.handle_.get() < 0) return std::unexpected(file_error("create", final_path, errno));
    pending.temporary_ = name;
    pending.final_ = final_path;
    // mkostemp makes the file private; a finished one is as readable as any the user creates.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::fchmod(pending.handle_.get(), 0666 & ~mask);
    return pending;
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

PendingFile::~PendingFile() { discard(); }

void PendingFile::discard() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
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
    if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
        return std::unexpected(file_error("rename to", final_, errno));
    }
    temporary_.clear();
    return sync_folder(folder_of(final_));
}

}  // namespace wisp
