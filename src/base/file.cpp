#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/readable_file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;

Error file_error(const std::string& what, const fs::path& path, int error_number) {
    ErrorKind kind = ErrorKind::kUnavailable;
    std::string cure = "try again";
    switch (error_number) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            kind = ErrorKind::kNoSpace;
            cure = "free room on that disk and run again; nothing was changed";
            break;
        case EACCES:
        case EPERM:
        case EROFS:
            kind = ErrorKind::kDenied;
            cure = "check the permissions";
            break;
        case ENOENT:
        case ENOTDIR:
            kind = ErrorKind::kNotFound;
            cure = "check the path";
            break;
        case EISDIR:
        case EEXIST:
        case ENAMETOOLONG:
            kind = ErrorKind::kInvalid;
            cure = "check the path";
            break;
        default: break;
    }
    return Error{kind, fmt::format("cannot {} {}: {}; {}", what, shown(path.string()),
                                   std::strerror(error_number), cure)};
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

FileHandle::~FileHandle() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

Result<ReadableFile> ReadableFile::open(const fs::path& path, const char* wanted) {
    // Not blocking, so that a named pipe is refused and not waited for.
    FileHandle file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0) return std::unexpected(file_error("open", path, errno));
    struct stat status = {};
    if (::fstat(file.get(), &status) != 0) return std::unexpected(file_error("stat", path, errno));
    if (!S_ISREG(status.st_mode)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is not a regular file; name {}", shown(path.string()), wanted));
    }
    return ReadableFile{std::move(file), static_cast<std::uint64_t>(status.st_size),
                        status.st_mode};
}

Result<MappedFile> MappedFile::open(const fs::path& path) {
    WISP_ASSIGN(const ReadableFile file, ReadableFile::open(path, "a .safetensors file"));
    MappedFile mapped;
    if (file.size_bytes == 0) return mapped;
    const auto size = static_cast<std::size_t>(file.size_bytes);
    void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.handle.get(), 0);
    if (at == MAP_FAILED) return std::unexpected(file_error("map", path, errno));
    mapped.bytes_ = {static_cast<const std::byte*>(at), size};
    return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<FileHandle> open_for_update(const fs::path& path) {
    FileHandle file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (file.get() < 0) return std::unexpected(file_error("open for writing", path, errno));
    return file;
}

Result<FileHandle> open_for_update_alone(const fs::path& path) {
    WISP_ASSIGN(FileHandle file, open_for_update(path));
    struct stat found = {};
    if (::fstat(file.get(), &found) == 0 && found.st_nlink > 1) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} has {} names (hard links), and writing to it would change what "
                                "the others hold; copy it first",
                                shown(path.string()), found.st_nlink));
    }
    return file;
}

Result<FileHandle> open_unnamed(const fs::path& folder) {
    FileHandle file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file.get() >= 0) return file;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
        return std::unexpected(file_error("create a temporary file in", folder, errno));
    }
    // Some network file systems have no unnamed files: a name that is removed at once serves.
    std::string name = (folder / ".wisp-spool-XXXXXX").string();
    file = FileHandle(::mkostemp(name.data(), O_CLOEXEC));
    if (file.get() < 0) {
        return std::unexpected(file_error("create a temporary file in", folder, errno));
    }
    ::unlink(name.c_str());
    return file;
}

Result<void> write_at(const FileHandle& file, std::uint64_t offset,
                      std::span<const std::byte> bytes, const fs::path& path) {
    while (!bytes.empty()) {
        const ssize_t n =
            ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return std::unexpected(file_error("write", path, errno));
        if (n == 0) return std::unexpected(file_error("write", path, ENOSPC));
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        offset += static_cast<std::uint64_t>(n);
    }
    return {};
}

Result<void> read_at(const FileHandle& file, std::uint64_t offset, std::span<std::byte> bytes,
                     const fs::path& path) {
    while (!bytes.empty()) {
        const ssize_t n =
            ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return std::unexpected(file_error("read", path, errno));
        if (n == 0) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("{} ends too early", shown(path.string())));
        }
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        offset += static_cast<std::uint64_t>(n);
    }
    return {};
}

Result<void> sync_file(const FileHandle& file, const fs::path& path) {
    if (::fsync(file.get()) != 0) return std::unexpected(file_error("fsync", path, errno));
    return {};
}

Result<void> sync_folder(const fs::path& folder) {
    const FileHandle handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (handle.get() < 0) return std::unexpected(file_error("open", folder, errno));
    return sync_file(handle, folder);
}

fs::path folder_of(const fs::path& path) {
    const fs::path parent = path.parent_path();
    return parent.empty() ? fs::path(".") : parent;
}

}  // namespace wisp
