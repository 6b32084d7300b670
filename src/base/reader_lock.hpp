// Many readers of a folder, or one writer: between processes, and inside one.
//
//   <place>/readers   held shared by each who reads, exclusively by the one who writes
//   <place>/turn      passed by each on its way in; a writer that waits holds it, so that readers
//                     who come after it do not keep it out for ever
#pragma once

#include <filesystem>
#include <string_view>

#include "base/folder_lock.hpp"

namespace wisp {

/// The name of the file that a held lock is on.
inline constexpr const char* kReadersName = "readers";

/// Waits until the others are out. kUnavailable with `in_use` when that takes longer than
/// `timeout`.
Result<FolderLock> lock_readers(const std::filesystem::path& place, LockMode mode,
                                Milliseconds timeout, std::string_view in_use);

}  // namespace wisp
