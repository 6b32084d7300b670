// What a power cut leaves on a disk: of each file what was synced, and each name if its folder was
// synced after it was given.
//
// Stricter than most file systems, and what POSIX promises. Folders themselves stay: whatever is
// synced inside one carries its name along. What was overwritten since the last sync comes mixed,
// what was never synced comes empty, short or as zeros. Files are told apart by their inodes.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/bytes.hpp"
#include "base/random.hpp"

namespace wisp::sim {

class SyncedDisk {
  public:
    /// After a successful fsync of a file or a folder.
    void synced(int descriptor);
    /// All of it is as durable as can be: a process that starts finds it so.
    void sync_all(const std::filesystem::path& folder);
    /// Puts what a power cut leaves of `folder` into `remains`.
    void cut_power(const std::filesystem::path& folder, const std::filesystem::path& remains,
                   Random& random) const;

  private:
    using Names = std::map<std::string, ino_t>;
    void sync_names(const std::filesystem::path& folder, ino_t inode);
    Bytes left_of(ino_t inode, const std::map<ino_t, std::filesystem::path>& present,
                  Random& random) const;

    std::map<ino_t, Bytes> contents_;
    std::map<ino_t, Names> names_;  // of files, by their folder
};

}  // namespace wisp::sim
