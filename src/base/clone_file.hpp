// The bytes of a file under another name, without copying them where the file system can do that.
#pragma once

#include <filesystem>

#include "wisp/result.hpp"

namespace wisp {

/// A file of its own with the same bytes: they share blocks on disk where the file system has
/// reflinks (btrfs, XFS), and are copied elsewhere. Either may be written to afterwards. kInvalid
/// when `to` is there already. Nothing is synced.
Result<void> clone_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// The same for a file that nobody ever writes to: a hard link where there are no reflinks. A
/// process that wrote to one name in place would change the other, which wisp refuses to do
/// (open_for_update_alone).
Result<void> share_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace wisp
