// Folders that a follower keeps, for engines and people that load from disk while it goes on: one
// for each step, and reading either kind without a step in between.
//
//   <root>/step_12/, step_13/, …   checkpoints that any loader opens; nobody writes to them again
//   <root>/current                 a link to the newest, flipped in one rename
//
// A folder is put together beside its place and appears whole. What a step did not touch shares its
// bytes with the step before, by reflinks or hard links, where the file system has them. A path
// through `current` may lead to another step at each open: resolve it once, or hold a
// FolderReading.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "wisp/control.hpp"
#include "wisp/replica.hpp"
#include "wisp/step_folders.hpp"

namespace wisp {

struct SnapshotReplicaOptions {
    unsigned threads = 0;
    /// How many of the newest stay, at least two: a reader needs the time to open what it was told.
    /// The one that `current` names, and those that are read under a lock, stay in any case.
    std::size_t keep = 3;
    /// An empty file that is put into each folder when everything else is in place; empty: none.
    std::string marker;
    /// How long to wait for readers before a step is put in the place of another with its number,
    /// which only a run that was rewound needs.
    Milliseconds reader_timeout = Milliseconds(60'000);
    Progress progress;
    /// Told once of each folder that should have been removed and could not be.
    std::function<void(const std::string&)> on_kept;
};

/// Opens or makes the root of `where`, and locks it against other processes (kConflict). kInvalid
/// when there are folders with such names, or a `current`, that wisp did not make.
Result<std::unique_ptr<Replica>> open_snapshot_replica(const StepPattern& where,
                                                       const SnapshotReplicaOptions& options = {});

/// While it lives, the folder is at one step: a follower that keeps it in place waits with the next
/// one, and one that makes a folder per step does not remove it. Followers say so when a reader
/// keeps them waiting for long. The lock ends with the process, however that ends; a child made by
/// fork() does not hold it.
class FolderReading {
  public:
    /// `folder` is one that a follower keeps in place, one of its steps, the link `current`, or the
    /// folder that they lie in. Waits while it is written to. kNotFound: it holds no step yet.
    /// kInvalid: wisp does not keep it. kConflict: a change of it was interrupted, and its follower
    /// has to finish that first. kUnavailable: not within `timeout`.
    static Result<FolderReading> begin(const std::filesystem::path& folder, Milliseconds timeout);
    FolderReading(FolderReading&&) noexcept;
    FolderReading& operator=(FolderReading&&) noexcept;
    ~FolderReading();

    /// Where to read: links are resolved, so that it stays the same step.
    const std::filesystem::path& folder() const;
    const ReplicaRecord& at() const;
    /// A program that replaces this process goes on holding the lock.
    void keep_across_exec() const;

  private:
    struct State;
    explicit FolderReading(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
