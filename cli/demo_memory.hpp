// A replica in memory that costs no second copy: what it takes over is a file, and its memory is
// that file, mapped. Under another name the file stays, for whoever wants to look.
#pragma once

#include <filesystem>

#include "wisp/wisp.hpp"

namespace wisp::cli {

/// In `folder`: scratch/, and weights.safetensors once there is a state. `enter` as in
/// MemoryReplicaOptions.
Result<std::unique_ptr<Replica>> open_mapped_replica(
    const std::filesystem::path& folder, unsigned threads,
    std::function<Result<std::shared_ptr<void>>()> enter);

/// Where the weights of such a replica lie.
std::filesystem::path mapped_weights(const std::filesystem::path& folder);

}  // namespace wisp::cli
