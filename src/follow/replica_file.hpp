// What a replica's folder remembers of itself, as JSON: doc/protocol.md section 7.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/replica.hpp"

namespace wisp {

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

}  // namespace wisp
