// The cheapest way to a state: from where the replica is, from an anchor, or from a base it has.
//
// Pure arithmetic over a manifest: nothing is read. Costs are bytes, and something for every
// request.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "log/commit.hpp"

namespace wisp {

struct FetchStep {
    StateName from;
    StateName to;
    std::optional<StoredFile>
        merged_delta;  // absent: by the single deltas of the commits in between
};

struct FetchPlan {
    enum class Start { kHere, kBase, kAnchor };
    Start start = Start::kHere;
    std::optional<AnchorEntry> anchor;  // of kAnchor
    StateName from;
    std::vector<FetchStep> steps;
    std::uint64_t bytes = 0;
    std::uint64_t objects = 0;  // commits to be read included
};

struct FetchPlanRequest {
    StateName target;
    std::uint64_t floor = 0;
    std::optional<StateName> here;
    std::optional<StateDigest> base;  // of a checkpoint at hand
    std::set<std::string> avoid;      // keys that turned out to be missing or damaged
};

/// Nothing when no way is left.
std::optional<FetchPlan> plan_fetch(const Manifest& manifest, const FetchPlanRequest& request);

/// How many of these deltas, given by the sizes of their files, to take in at once: what they
/// change has to fit into memory, or they would be decoded a second time while they are written. At
/// least one.
std::size_t batch_length(std::span<const std::uint64_t> delta_bytes);

}  // namespace wisp
