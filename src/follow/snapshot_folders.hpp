// The folders of steps that lie side by side in one root: put in place, marked, named by `current`,
// removed. Only what wisp made is ever replaced or removed: a folder that holds a snapshot.json, is
// on the list of the one who asks, and has no files but those that snapshot.json lists and empty
// ones.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/folder_lock.hpp"
#include "follow/replica_file.hpp"
#include "wisp/step_folders.hpp"

namespace wisp {

class SnapshotFolders {
  public:
    explicit SnapshotFolders(StepPattern where) : where_(std::move(where)) {}

    const std::filesystem::path& root() const { return where_.root(); }
    std::filesystem::path folder(const std::string& name) const { return root() / name; }
    std::string name_of(std::uint64_t step) const { return where_.name_of(step); }
    std::filesystem::path scratch() const { return root() / kWispFolder / "scratch"; }
    /// An empty folder to put a step together in.
    Result<std::filesystem::path> make_building() const;

    /// kInvalid where somebody else's folders have the names of steps, or `current` is theirs.
    Result<void> refuse_foreign() const;
    /// What an interrupted change left behind.
    void clear_leftovers() const;

    /// Writes down in `built` what it is, and syncs all of it.
    Result<void> seal(const std::filesystem::path& built, const ReplicaFile& what) const;
    /// What a folder says it is; kNotFound when it is no snapshot.
    Result<ReplicaFile> read(const std::string& name) const;
    /// Held by the caller while a folder of that name is replaced. kInvalid when there is one that
    /// must not be; kUnavailable when readers do not let go of it.
    Result<std::optional<FolderLock>> claim(const std::string& name,
                                            const std::vector<std::string>& made,
                                            Milliseconds timeout) const;
    /// In one rename, in the place of one that was claimed.
    Result<void> put(const std::filesystem::path& built, const std::string& name) const;
    /// An empty file; synced.
    Result<void> mark(const std::string& name, const std::string& marker) const;
    /// Makes `current` name it.
    Result<void> flip(const std::string& name) const;
    /// Where `current` leads; empty when it leads nowhere.
    std::string current() const;
    /// kInvalid: it holds what wisp did not make. kUnavailable: somebody reads it.
    Result<void> remove(const std::string& name) const;

  private:
    Result<void> refuse_changed(const std::string& name) const;
    StepPattern where_;
};

}  // namespace wisp
