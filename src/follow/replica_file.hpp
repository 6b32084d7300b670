// What a replica's folder remembers of itself, as JSON: doc/protocol.md section 7.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/replica.hpp"

namespace wisp {

/// Where things of wisp's own lie in a folder that it keeps, and what they are called there.
inline constexpr const char* kWispFolder = ".wisp";
inline constexpr const char* kReplicaName = "replica.json";  // of a folder kept in place
inline constexpr const char* kSnapshotsName =
    "snapshots.json";                                          // of one that holds a folder a step
inline constexpr const char* kSnapshotName = "snapshot.json";  // of the folder of a step
inline constexpr const char* kCurrentName = "current";         // the link to the newest

/// In a snapshots.json, `files` are the folders of steps that were made there.
struct ReplicaFile {
    std::optional<ReplicaRecord> at;
    std::optional<ReplicaRecord> next;  // being moved to; the weights tell which of the two holds
    std::vector<std::string> files;     // of the checkpoint that were put there by wisp
    /// Not empty: files of scratch that are being moved into place.
    std::string incoming;
    std::vector<std::string> moving;
};

std::string write_replica_file(const ReplicaFile& file);
/// kCorrupt, without a label.
Result<ReplicaFile> parse_replica_file(std::string_view text);

/// An empty one when it is missing; kCorrupt, naming the file, when it is damaged.
Result<ReplicaFile> read_replica_file(const std::filesystem::path& path);
/// Atomically; with `durable`, synced.
Result<void> save_replica_file(const std::filesystem::path& path, const ReplicaFile& file,
                               bool durable);

}  // namespace wisp
