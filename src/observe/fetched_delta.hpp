// The delta of one commit, fetched into a folder that goes away with it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/pending_folder.hpp"
#include "wisp/run.hpp"

namespace wisp {

struct FetchedDelta {
    PendingFolder folder;
    std::filesystem::path path;
};

/// Of a commit that the newest one vouches for; kNotFound when it has no delta.
Result<FetchedDelta> fetch_delta_of(const Location& where, std::uint64_t seq,
                                    const RunOptions& options);

}  // namespace wisp
