#include "base/clone_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.hpp"
#include "base/try.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

Result<FileHandle> create_new(const fs::path& path) {
    FileHandle file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() < 0) return std::unexpected(file_error("create", path, errno));
    return file;
}

/// What the kernel cannot move by itself is written from a mapping.
Result<void> copy_rest(const MappedFile& source, std::uint64_t done, const FileHandle& target,
                       const fs::path& to) {
    const auto bytes = source.bytes();
    while (done < bytes.size()) {
        if (stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked");
        const auto piece = bytes.subspan(done, std::min(kPieceBytes, bytes.size() - done));
        WISP_TRY(write_at(target, done, piece, to));
        done += piece.size();
    }
    return {};
}

Result<void> copy_bytes(const fs::path& from, const FileHandle& target, const fs::path& to) {
    const FileHandle source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
    if (source.get() < 0) return std::unexpected(file_error("open", from, errno));
    if (::ioctl(target.get(), FICLONE, source.get()) == 0) return {};
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(from));
    const std::uint64_t size = mapped.bytes().size();
    std::uint64_t done = 0;
    while (done < size) {
        if (stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked");
        auto from_at = static_cast<off_t>(done);
        auto to_at = from_at;
        const ssize_t moved = ::copy_file_range(source.get(), &from_at, target.get(), &to_at,
                                                std::min(kPieceBytes, size - done), 0);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
            return std::unexpected(file_error("write", to, errno));
        }
        if (moved <= 0) break;  // not on these file systems
        done += static_cast<std::uint64_t>(moved);
    }
    return copy_rest(mapped, done, target, to);
}

}  // namespace

Result<void> clone_file(const fs::path& from, const fs::path& to) {
    WISP_ASSIGN(const FileHandle target, create_new(to));
    auto copied = copy_bytes(from, target, to);
    if (!copied) ::unlink(to.c_str());
    return copied;
}

Result<void> share_file(const fs::path& from, const fs::path& to) {
    {
        const FileHandle source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
        if (source.get() < 0) return std::unexpected(file_error("open", from, errno));
        WISP_ASSIGN(const FileHandle target, create_new(to));
        if (::ioctl(target.get(), FICLONE, source.get()) == 0) return {};
    }
    ::unlink(to.c_str());
    if (::link(from.c_str(), to.c_str()) == 0) return {};
    // No links here, or too many of them.
    return clone_file(from, to);
}

}  // namespace wisp
