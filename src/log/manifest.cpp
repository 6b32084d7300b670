#include "log/manifest.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace wisp {
namespace {

// Some 400 bytes each; a commit holds a mebibyte.
constexpr std::size_t kAnchorsKept = 256;
constexpr std::size_t kRoadsKept = 512;
// Some 200 bytes each: anchors of many parts are let go before the commit is full.
constexpr std::size_t kAnchorPartsKept = 2048;

auto order_of(const RoadEntry& road) {
    return std::tuple(road.from.seq, road.to.seq);
}

std::size_t parts_of(const AnchorEntry& anchor) {
    std::size_t parts = 0;
    for (const StoredFile& file : anchor.files) parts += file.parts.size();
    return parts;
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
    std::size_t anchors = map.anchors.size();
    std::size_t parts = 0;
    for (const AnchorEntry& anchor : map.anchors) parts += parts_of(anchor);
    const std::uint64_t newest = map.anchors.empty() ? 0 : map.anchors.back().state.seq;
    std::erase_if(map.anchors, [&](const AnchorEntry& anchor) {
        const bool first = lines.insert(anchor.state.line).second;
        const bool surplus = anchors > kAnchorsKept || parts > kAnchorPartsKept;
        if (first || !surplus || anchor.state.seq == newest) return false;
        --anchors;
        parts -= parts_of(anchor);
        return true;
    });
    if (map.roads.size() > kRoadsKept) {
        map.roads.erase(map.roads.begin(),
                        map.roads.end() - static_cast<std::ptrdiff_t>(kRoadsKept));
    }
}

}  // namespace wisp
