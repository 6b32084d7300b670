// Files: read through a mapping, written so that a crash leaves the old or the new, never half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "wisp/result.hpp"

namespace wisp {

/// Turns errno into the kind that names the cure: no room, denied, not found, else unavailable.
Error file_error(const std::string& what, const std::filesystem::path& path, int error_number);

/// A descriptor that closes itself.
class FileHandle {
  public:
    FileHandle() = default;
    explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
    FileHandle(FileHandle&& other) noexcept;
    FileHandle& operator=(FileHandle&& other) noexcept;
    ~FileHandle();
    int get() const { return descriptor_; }

  private:
    int descriptor_ = -1;
};

/// A whole file, read-only. Empty files map to an empty span.
class MappedFile {
  public:
    static Result<MappedFile> open(const std::filesystem::path& path);
    MappedFile() = default;
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();
    std::span<const std::byte> bytes() const { return bytes_; }

  private:
    std::span<const std::byte> bytes_;
};

Result<FileHandle> open_for_update(const std::filesystem::path& path);
/// kInvalid for a file with several names (hard links): to write to one changes the others.
Result<FileHandle> open_for_update_alone(const std::filesystem::path& path);
/// An unnamed file in `folder` that vanishes with its handle.
Result<FileHandle> open_unnamed(const std::filesystem::path& folder);
Result<void> write_at(const FileHandle& file, std::uint64_t offset,
                      std::span<const std::byte> bytes, const std::filesystem::path& path);
Result<void> read_at(const FileHandle& file, std::uint64_t offset, std::span<std::byte> bytes,
                     const std::filesystem::path& path);
Result<void> sync_file(const FileHandle& file, const std::filesystem::path& path);
Result<void> sync_folder(const std::filesystem::path& folder);

/// The folder that holds `path`; "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// A file being written beside its final place; gone unless committed.
class PendingFile {
  public:
    /// Unnamed files vanish even with a killed process; a visible one tells that it was there.
    enum class Until { kUnnamed, kVisible };
    static Result<PendingFile> create(const std::filesystem::path& final_path,
                                      Until until = Until::kUnnamed);
    PendingFile(PendingFile&& other) noexcept;
    PendingFile& operator=(PendingFile&& other) noexcept;
    ~PendingFile();

    const FileHandle& handle() const { return handle_; }
    const std::filesystem::path& path() const { return final_; }
    /// Appends at the end of what was appended before.
    Result<void> append(std::span<const std::byte> bytes);
    std::uint64_t size_bytes() const { return size_bytes_; }
    /// Takes the room on disk now, so that a full disk is met before work is done.
    Result<void> reserve(std::uint64_t bytes);
    /// fsync, rename over the final name, fsync of the folder.
    Result<void> commit();
    /// The rename alone, for what may be lost with the power but never be seen half.
    Result<void> commit_unsynced();

  private:
    PendingFile() = default;
    Result<void> give_temporary_name();
    FileHandle handle_;
    std::filesystem::path temporary_;
    std::filesystem::path final_;
    std::uint64_t size_bytes_ = 0;
};

}  // namespace wisp
