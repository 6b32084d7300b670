#include "format/road_map.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace wisp {
namespace {

// Some 400 bytes each; a commit holds a mebibyte.
constexpr std::size_t kAnchorsKept = 256;
constexpr std::size_t kRoadsKept = 512;

auto order_of(const RoadEntry& road) {
    return std::tuple(road.from.seq, road.to.seq);
}

}  // namespace

void add_anchor(RoadMap& map, AnchorEntry anchor) {
    std::erase_if(map.anchors,
                  [&](const AnchorEntry& other) { return other.state.seq == anchor.state.seq; });
    const auto at =
        std::ranges::upper_bound(map.anchors, anchor.state.seq, {},
                                 [](const AnchorEntry& other) { return other.state.seq; });
    map.anchors.insert(at, std::move(anchor));
}

void add_road(RoadMap& map, RoadEntry road) {
    std::erase_if(map.roads, [&](const RoadEntry& other) {
        return other.from.seq >= road.from.seq && other.to.seq <= road.to.seq;
    });
    const auto at = std::ranges::upper_bound(map.roads, order_of(road), {}, order_of);
    map.roads.insert(at, std::move(road));
}

void prune(RoadMap& map, std::uint64_t floor) {
    std::erase_if(map.anchors, [&](const AnchorEntry& anchor) { return anchor.state.seq < floor; });
    std::erase_if(map.roads, [&](const RoadEntry& road) { return road.from.seq < floor; });
}

void thin(RoadMap& map) {
    std::set<std::uint64_t> lines;
    std::size_t surplus = map.anchors.size() > kAnchorsKept ? map.anchors.size() - kAnchorsKept : 0;
    std::erase_if(map.anchors, [&](const AnchorEntry& anchor) {
        const bool first = lines.insert(anchor.state.line).second;
        if (first || surplus == 0) return false;
        --surplus;
        return true;
    });
    if (map.roads.size() > kRoadsKept) {
        map.roads.erase(map.roads.begin(),
                        map.roads.end() - static_cast<std::ptrdiff_t>(kRoadsKept));
    }
}

}  // namespace wisp
