// One user at a time for a folder: between processes, and inside one.
#pragma once

#include <filesystem>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

/// Held until destroyed, or until its process ends in whatever way. A forked child does not hold
/// it, and cannot release it.
class FolderLock {
  public:
    /// `file` is made if it is missing, and stays. kConflict with `in_use` when somebody holds it.
    static Result<FolderLock> take(const std::filesystem::path& file, std::string_view in_use);
    FolderLock(FolderLock&& other) noexcept;
    FolderLock& operator=(FolderLock&&) = delete;
    ~FolderLock();

  private:
    explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
    int descriptor_ = -1;
};

/// For a folder of files on their way in or out, which names the one who writes, too.
Result<FolderLock> lock_scratch(const std::filesystem::path& folder);

}  // namespace wisp
