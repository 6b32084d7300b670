// A replica that never changes what it once put in place: a folder for each step, for engines and
// people that load from disk while it goes on.
//
//   <root>/step_12/, step_13/, …   checkpoints that any loader opens; nobody writes to them again
//   <root>/current                 a link to the newest, flipped in one rename
//
// A folder is put together beside its place and appears whole. What a step did not touch shares its
// bytes with the step before, by reflinks or hard links, where the file system has them.
// A path through `current` may lead to another step at each open: resolve it once, or read under a
// lock (wisp/read_folder.hpp), which also keeps the folder from being removed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "wisp/replica.hpp"
#include "wisp/step_pattern.hpp"

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
    Milliseconds reader_patience = Milliseconds(60'000);
    Progress progress;
    /// Told once of each folder that should have been removed and could not be.
    std::function<void(const std::string&)> on_kept;
};

/// Opens or makes the root of `where`, and locks it against other processes (kConflict). kInvalid
/// when there are folders with such names, or a `current`, that wisp did not make.
Result<std::unique_ptr<Replica>> open_snapshot_replica(const StepPattern& where,
                                                       const SnapshotReplicaOptions& options = {});

}  // namespace wisp
