#include "follow/fetch_plan.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace wisp {
namespace {

// What one request is worth in bytes: about the time to the first byte of a far store.
constexpr std::uint64_t kRequestBytes = 64 << 10;
constexpr std::uint64_t kUnreached = std::numeric_limits<std::uint64_t>::max();

struct Arrival {
    std::uint64_t cost = kUnreached;
    std::uint64_t bytes = 0;
    std::uint64_t objects = 0;
    // How it was reached: a start, or a leg from another state.
    Route::Start start = Route::Start::kHere;
    const AnchorEntry* anchor = nullptr;
    std::uint64_t before = 0;
    const RoadEntry* road = nullptr;
    bool by_leg = false;
};

struct Node {
    StateName state;
    Arrival best;
};

class Planner {
  public:
    Planner(const RoadMap& map, const RouteRequest& request) : map_(map), request_(request) {
        add(request.target);
        if (request.here) add(*request.here);
        for (const AnchorEntry& anchor : map.anchors) add(anchor.state);
        for (const RoadEntry& road : map.roads) {
            add(road.from);
            add(road.to);
        }
    }

    std::optional<Route> plan() {
        start();
        // Every leg leads forward, so one pass in order of seq finds the cheapest arrivals.
        for (auto at = nodes_.begin(); at != nodes_.end(); ++at) {
            if (at->second.best.cost == kUnreached) continue;
            if (at->first == request_.target.seq) break;
            if (const auto next = std::next(at); next != nodes_.end())
                walk(at->second, next->second);
            for (const RoadEntry& road : map_.roads) {
                if (road.from == at->second.state) drive(at->second, road);
            }
        }
        return trace();
    }

  private:
    void add(const StateName& state) {
        if (state.seq <= request_.target.seq) nodes_.try_emplace(state.seq, Node{state, {}});
    }
    bool usable(const StoredFile& file) const {
        return std::ranges::none_of(
            file.parts, [&](const StoredPart& part) { return request_.avoid.contains(part.key); });
    }
    static void offer(Node& node, const Arrival& arrival) {
        if (arrival.cost < node.best.cost) node.best = arrival;
    }

    void start() {
        for (auto& [seq, node] : nodes_) {
            Arrival arrival;
            const bool here = request_.here && *request_.here == node.state;
            const bool base = request_.base && *request_.base == node.state.digest;
            if (here || base) {
                arrival.cost = 0;
                arrival.start = here ? Route::Start::kHere : Route::Start::kBase;
                offer(node, arrival);
            }
        }
        for (const AnchorEntry& anchor : map_.anchors) {
            const auto at = nodes_.find(anchor.state.seq);
            const bool fits = !anchor.base || (request_.base && *request_.base == *anchor.base);
            if (at == nodes_.end() || !fits ||
                !std::ranges::all_of(anchor.files, [&](auto& file) { return usable(file); })) {
                continue;
            }
            Arrival arrival;
            arrival.bytes = anchor.bytes();
            for (const StoredFile& file : anchor.files) arrival.objects += file.parts.size();
            arrival.cost = arrival.bytes + arrival.objects * kRequestBytes;
            arrival.start = Route::Start::kAnchor;
            arrival.anchor = &anchor;
            offer(at->second, arrival);
        }
    }

    /// Along the single deltas, which are there from the floor on and inside one line.
    void walk(const Node& from, Node& to) const {
        if (from.state.line != to.state.line || from.state.seq < request_.floor) return;
        if (to.state.travelled < from.state.travelled || to.state.count < from.state.count) return;
        // A state reached by a damaged single delta cannot be walked to.
        if (request_.avoid.contains(std::to_string(to.state.seq))) return;
        Arrival arrival;
        const std::uint64_t bytes = to.state.travelled - from.state.travelled;
        const std::uint64_t objects = 2 * (to.state.count - from.state.count);
        arrival.bytes = from.best.bytes + bytes;
        arrival.objects = from.best.objects + objects;
        arrival.cost = from.best.cost + bytes + objects * kRequestBytes;
        arrival.by_leg = true;
        arrival.before = from.state.seq;
        offer(to, arrival);
    }

    void drive(const Node& from, const RoadEntry& road) {
        const auto to = nodes_.find(road.to.seq);
        if (to == nodes_.end() || to->second.state != road.to || !usable(road.delta)) return;
        Arrival arrival;
        arrival.bytes = from.best.bytes + road.delta.bytes();
        arrival.objects = from.best.objects + road.delta.parts.size();
        arrival.cost =
            from.best.cost + road.delta.bytes() + road.delta.parts.size() * kRequestBytes;
        arrival.by_leg = true;
        arrival.before = from.state.seq;
        arrival.road = &road;
        offer(to->second, arrival);
    }

    std::optional<Route> trace() const {
        const Node* node = &nodes_.at(request_.target.seq);
        if (node->best.cost == kUnreached) return std::nullopt;
        Route route;
        route.bytes = node->best.bytes;
        route.objects = node->best.objects;
        while (node->best.by_leg) {
            const Node& before = nodes_.at(node->best.before);
            Leg leg{before.state, node->state, std::nullopt};
            if (node->best.road != nullptr) leg.road = node->best.road->delta;
            route.legs.push_back(std::move(leg));
            node = &before;
        }
        std::ranges::reverse(route.legs);
        route.start = node->best.start;
        route.from = node->state;
        if (node->best.anchor != nullptr) route.anchor = *node->best.anchor;
        return route;
    }

    const RoadMap& map_;
    const RouteRequest& request_;
    std::map<std::uint64_t, Node> nodes_;
};

}  // namespace

std::optional<Route> plan_route(const RoadMap& map, const RouteRequest& request) {
    return Planner(map, request).plan();
}

}  // namespace wisp
