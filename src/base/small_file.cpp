#include "base/small_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

Result<void> fill(const FileHandle& file, std::string_view text, const fs::path& path) {
    WISP_TRY(write_at(file, 0, as_bytes(text), path));
    WISP_TRY(sync_file(file, path));
    return sync_folder(folder_of(path));
}

}  // namespace

Result<std::string> read_small_file(const fs::path& path, std::size_t limit, Readers readers) {
    // Not blocking, so that a named pipe is refused and not waited for.
    const FileHandle file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0) return std::unexpected(file_error("open", path, errno));
    struct stat status = {};
    if (::fstat(file.get(), &status) != 0) return std::unexpected(file_error("stat", path, errno));
    if (!S_ISREG(status.st_mode)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is not a regular file; name a file", shown(path.string())));
    }
    if (readers == Readers::kOwnerOnly && (status.st_mode & 077) != 0) {
        return fail(ErrorKind::kDenied,
                    fmt::format("key file {} is open to others (mode {:03o}); run 'chmod 600' on "
                                "it, and replace the key if it may have been read",
                                shown(path.string()), status.st_mode & 0777));
    }
    if (static_cast<std::uint64_t>(status.st_size) > limit) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} has {} bytes, more than the {} such a file may have; is it "
                                "the right one?",
                                shown(path.string()), status.st_size, limit));
    }
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    WISP_TRY(read_at(file, 0, std::as_writable_bytes(std::span(text)), path));
    return text;
}

Result<void> write_new_file(const fs::path& path, std::string_view text, Readers readers) {
    const mode_t mode = readers == Readers::kOwnerOnly ? 0600 : 0666;
    const FileHandle file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (file.get() < 0) {
        if (errno != EEXIST) return std::unexpected(file_error("create", path, errno));
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is there already and is never overwritten; choose another name",
                                shown(path.string())));
    }
    auto filled = fill(file, text, path);
    if (!filled) ::unlink(path.c_str());
    return filled;
}

}  // namespace wisp
