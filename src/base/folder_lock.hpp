// One user at a time for a folder, or many readers: between processes, and inside one.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/pending_folder.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

enum class LockMode { kExclusive, kShared };

/// Held until destroyed, or until its process ends in whatever way. A forked child does not hold
/// it, and cannot release it.
class FolderLock {
  public:
    /// `file` is made if it is missing, and stays. kConflict with `in_use` when somebody holds it.
    static Result<FolderLock> take(const std::filesystem::path& file, std::string_view in_use);
    /// Waits, and fails with kUnavailable when `timeout` is over or the caller's work is to end.
    static Result<FolderLock> wait(const std::filesystem::path& file, LockMode mode,
                                   Milliseconds timeout, std::string_view in_use);
    /// Whether `file` is still the one that is held.
    bool holds(const std::filesystem::path& file) const;
    /// A program that replaces this process goes on holding it, and so do the ones it starts.
    void keep_across_exec() const;
    FolderLock(FolderLock&& other) noexcept;
    FolderLock& operator=(FolderLock&& other) noexcept;
    ~FolderLock();

  private:
    explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
    int descriptor_ = -1;
};

/// For files on their way in or out: a folder that was named, which is kept and has one user at a
/// time, or a temporary one, removed with this.
class ScratchFolder {
  public:
    /// Temporary when `named` is empty; else made if it is missing. kConflict when it is in use.
    static Result<ScratchFolder> open(const std::filesystem::path& named);
    const std::filesystem::path& path() const { return temporary_ ? temporary_->path() : named_; }

  private:
    ScratchFolder() = default;
    std::filesystem::path named_;
    std::optional<PendingFolder> temporary_;
    std::optional<FolderLock> lock_;
};

}  // namespace wisp
