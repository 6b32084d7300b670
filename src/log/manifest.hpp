// What is kept in a run's map, and what is let go.
#pragma once

#include <cstdint>

#include "log/commit.hpp"

namespace wisp {

/// Replaces an anchor of the same state; keeps the order.
void add_anchor(RoadMap& map, AnchorEntry anchor);
/// Drops roads that lie inside the new one: nobody would take them any more.
void add_road(RoadMap& map, RoadEntry road);
/// Lets go of what starts below the floor.
void prune(RoadMap& map, std::uint64_t floor);
/// Keeps a commit below its size limit: old anchors of a line, save its first, and then old roads,
/// are let go. Every state stays reachable along the single deltas.
void thin(RoadMap& map);

}  // namespace wisp
