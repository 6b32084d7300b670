#include "base/small_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/bytes.hpp"
#include "base/readable_file.hpp"
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
    WISP_ASSIGN(const ReadableFile file, ReadableFile::open(path, "a file"));
    if (readers == Readers::kOwnerOnly && (file.mode & 077) != 0) {
        return fail(ErrorKind::kDenied,
                    fmt::format("key file {} is open to others (mode {:03o}); run 'chmod 600' on "
                                "it, and replace the key if it may have been read",
                                shown(path.string()), file.mode & 0777));
    }
    if (file.size_bytes > limit) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} has {} bytes, more than the {} such a file may have; is it "
                                "the right one?",
                                shown(path.string()), file.size_bytes, limit));
    }
    std::string text(static_cast<std::size_t>(file.size_bytes), '\0');
    WISP_TRY(read_at(file.handle, 0, std::as_writable_bytes(std::span(text)), path));
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
