// What is kept in a run's manifest, and what is let go.
#pragma once

#include <cstdint>

#include "log/commit.hpp"

namespace wisp {

/// Replaces an anchor of the same state; keeps the order.
void add_anchor(Manifest& manifest, AnchorEntry anchor);
/// Drops merged deltas that lie inside the new one: nobody would take them any more.
void add_merged_delta(Manifest& manifest, MergedDelta merged_delta);
/// Lets go of what starts below the floor.
void prune(Manifest& manifest, std::uint64_t floor);
/// Keeps a commit below its size limit: old anchors of a chain, save its first, and then old merged
/// deltas, are let go. Every state stays reachable along the single deltas.
void thin(Manifest& manifest);

}  // namespace wisp
