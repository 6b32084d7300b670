#include "follow/fetch_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.hpp"
#include "log/manifest.hpp"
#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

constexpr std::uint64_t kRequest = 64 << 10;
constexpr std::uint64_t kMega = 1 << 20;

/// State `seq` of a run whose every single delta has `each` bytes.
StateName state_of(std::uint64_t seq, std::uint64_t each, std::uint64_t line = 1) {
    return {seq, seq, {seq, seq}, line, seq * each, seq};
}

AnchorEntry anchor_of(const StateName& state, std::uint64_t bytes) {
    AnchorEntry anchor = anchor_at(state.seq, bytes);
    anchor.state = state;
    return anchor;
}

RoadEntry road_of(const StateName& from, const StateName& to, std::uint64_t bytes) {
    RoadEntry road = road_between(from.seq, to.seq, bytes);
    road.from = from;
    road.to = to;
    return road;
}

RouteRequest to(const StateName& target) {
    RouteRequest request;
    request.target = target;
    return request;
}

std::string described(const std::optional<Route>& route) {
    if (!route) return "none";
    std::string text = route->start == Route::Start::kHere   ? "here "
                       : route->start == Route::Start::kBase ? "base "
                                                             : "anchor ";
    text += std::to_string(route->from.seq);
    for (const Leg& leg : route->legs) {
        text += (leg.road ? " road " : " walk ") + std::to_string(leg.to.seq);
    }
    return text;
}

TEST(Route, TakesTheSinglesWhenTheyAreCheap) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(1, 100), 100 * kMega),
                   anchor_of(state_of(9, 100), 100 * kMega)};
    RouteRequest request = to(state_of(10, 100));
    request.here = state_of(7, 100);
    const auto route = plan_route(map, request);
    EXPECT_EQ(described(route), "here 7 walk 9 walk 10");
    EXPECT_EQ(route->bytes, 300U);
    EXPECT_EQ(route->objects, 6U) << "a commit and a delta each";
}

TEST(Route, TakesAnAnchorWhenTheSinglesOutweighIt) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(9, kMega), 4 * kMega)};
    RouteRequest request = to(state_of(10, kMega));
    request.here = state_of(1, kMega);
    const auto route = plan_route(map, request);
    EXPECT_EQ(described(route), "anchor 9 walk 10");
    ASSERT_TRUE(route->anchor);
    EXPECT_EQ(route->bytes, 5 * kMega);
    EXPECT_EQ(route->objects, 3U);
}

TEST(Route, TakesRoadsWhenTheyAreShorter) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(1, kMega), 4 * kMega)};
    map.roads = {road_of(state_of(1, kMega), state_of(5, kMega), 2 * kMega),
                 road_of(state_of(5, kMega), state_of(7, kMega), kMega)};
    EXPECT_EQ(described(plan_route(map, to(state_of(8, kMega)))), "anchor 1 road 5 road 7 walk 8");
    EXPECT_EQ(plan_route(map, to(state_of(8, kMega)))->bytes, 8 * kMega);
}

TEST(Route, CountsWhatARequestCosts) {
    // Four singles are fewer bytes than one merged delta, but eight requests.
    RoadMap map;
    map.anchors = {anchor_of(state_of(1, 10), 1000)};
    map.roads = {road_of(state_of(1, 10), state_of(5, 10), 1000)};
    EXPECT_EQ(described(plan_route(map, to(state_of(5, 10)))), "anchor 1 road 5");
    map.roads[0].delta.parts[0].bytes = 40 + 8 * kRequest;
    EXPECT_EQ(described(plan_route(map, to(state_of(5, 10)))), "anchor 1 walk 5");
}

TEST(Route, StartsFromABaseThatIsAStateOfTheRun) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(1, kMega), 100 * kMega)};
    RouteRequest request = to(state_of(3, kMega));
    request.base = state_of(1, kMega).digest;
    EXPECT_EQ(described(plan_route(map, request)), "base 1 walk 3");
    request.base = StateDigest{7, 8};
    EXPECT_EQ(described(plan_route(map, request)), "anchor 1 walk 3");
}

TEST(Route, TakesAnAnchorOnABaseOnlyWithThatBase) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(1, kMega), 100)};
    map.anchors[0].base = StateDigest{7, 8};
    RouteRequest request = to(state_of(2, kMega));
    EXPECT_EQ(described(plan_route(map, request)), "none");
    request.base = StateDigest{7, 9};
    EXPECT_EQ(described(plan_route(map, request)), "none");
    request.base = StateDigest{7, 8};
    EXPECT_EQ(described(plan_route(map, request)), "anchor 1 walk 2");
}

TEST(Route, GoesNowhereWhenItIsThere) {
    RouteRequest request = to(state_of(5, kMega));
    request.here = request.target;
    const auto route = plan_route({}, request);
    EXPECT_EQ(described(route), "here 5");
    EXPECT_EQ(route->bytes, 0U);
}

TEST(Route, DoesNotWalkBelowTheFloor) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(6, kMega), 50 * kMega)};
    RouteRequest request = to(state_of(8, kMega));
    request.here = state_of(4, kMega);
    EXPECT_EQ(described(plan_route(map, request)), "here 4 walk 6 walk 8");
    request.floor = 6;
    EXPECT_EQ(described(plan_route(map, request)), "anchor 6 walk 8");
    request.floor = 7;
    EXPECT_EQ(described(plan_route(map, request)), "none");
    // A road is named by the map, so it is there wherever it starts.
    map.roads = {road_of(state_of(4, kMega), state_of(8, kMega), kMega)};
    EXPECT_EQ(described(plan_route(map, request)), "here 4 road 8");
}

TEST(Route, DoesNotWalkFromOneLineToAnother) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(1, kMega, 1), kMega)};
    EXPECT_EQ(described(plan_route(map, to(state_of(3, kMega, 2)))), "none");
    map.anchors.push_back(anchor_of(state_of(2, kMega, 2), 90 * kMega));
    EXPECT_EQ(described(plan_route(map, to(state_of(3, kMega, 2)))), "anchor 2 walk 3");
}

TEST(Route, KeepsAwayFromWhatIsDamaged) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(1, kMega), kMega), anchor_of(state_of(3, kMega), 9 * kMega)};
    map.roads = {road_of(state_of(1, kMega), state_of(4, kMega), kMega)};
    RouteRequest request = to(state_of(4, kMega));
    EXPECT_EQ(described(plan_route(map, request)), "anchor 1 road 4");
    request.avoid = {map.roads[0].delta.parts[0].key};
    EXPECT_EQ(described(plan_route(map, request)), "anchor 1 walk 3 walk 4");
    request.avoid.insert("3");  // a single on the way to state 3
    EXPECT_EQ(described(plan_route(map, request)), "anchor 3 walk 4");
    request.avoid.insert(map.anchors[1].files[0].parts[0].key);
    EXPECT_EQ(described(plan_route(map, request)), "none");
}

TEST(Route, IgnoresWhatLiesBehindTheTarget) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(2, kMega), kMega), anchor_of(state_of(9, kMega), 1)};
    map.roads = {road_of(state_of(2, kMega), state_of(8, kMega), 1)};
    RouteRequest request = to(state_of(5, kMega));
    request.here = state_of(7, kMega);
    EXPECT_EQ(described(plan_route(map, request)), "anchor 2 walk 5");
}

TEST(Route, NeedsTheSameStateNotOnlyTheSameSeq) {
    RoadMap map;
    map.anchors = {anchor_of(state_of(2, kMega), kMega)};
    StateName other = state_of(2, kMega);
    other.digest = {99, 99};
    map.roads = {road_of(other, state_of(5, kMega), 1)};
    EXPECT_EQ(described(plan_route(map, to(state_of(5, kMega)))), "anchor 2 walk 5");
}

/// A random run: its states, a map over it, and a wish.
struct World {
    std::vector<StateName> states;
    RoadMap map;
    RouteRequest request;
};

World random_world(Random& random) {
    World world;
    const std::uint64_t count = 2 + random.below(9);
    StateName state;
    for (std::uint64_t i = 1; i <= count; ++i) {
        const bool new_line = i == 1 || random.below(6) == 0;
        state.seq += 1 + random.below(3);
        state.step = state.seq;
        state.digest = {state.seq, i};
        if (new_line) ++state.line;
        state.travelled += new_line ? 0 : random.below(4) * 100'000;
        state.count = i;
        world.states.push_back(state);
        if (random.below(3) == 0) {
            add_anchor(world.map, anchor_of(state, random.below(6) * 200'000));
        }
    }
    for (std::uint64_t roads = random.below(6); roads > 0; --roads) {
        const std::uint64_t from = random.below(count);
        const std::uint64_t to = random.below(count);
        if (from >= to) continue;
        add_road(world.map,
                 road_of(world.states[from], world.states[to], random.below(8) * 100'000));
    }
    world.request.target = world.states[random.below(count)];
    if (random.below(2) == 0) world.request.here = world.states[random.below(count)];
    if (random.below(3) == 0) world.request.base = world.states[random.below(count)].digest;
    if (random.below(3) == 0) world.request.floor = world.states[random.below(count)].seq;
    for (const RoadEntry& road : world.map.roads) {
        if (random.below(5) == 0) world.request.avoid.insert(road.delta.parts[0].key);
    }
    for (const AnchorEntry& anchor : world.map.anchors) {
        if (random.below(6) == 0) world.request.avoid.insert(anchor.files[0].parts[0].key);
    }
    return world;
}

/// Whether the planner could know of this state: nothing but map, target and `here` name states.
bool is_landmark(const World& world, const StateName& state) {
    const auto& [target, floor, here, base, avoid] = world.request;
    return state == target || (here && state == *here) ||
           std::ranges::any_of(world.map.anchors, [&](auto& a) { return a.state == state; }) ||
           std::ranges::any_of(world.map.roads,
                               [&](auto& r) { return r.from == state || r.to == state; });
}

/// The least cost from state `index` on, by trying everything.
std::optional<std::uint64_t> least_cost(const World& world, std::size_t index) {
    const StateName& at = world.states[index];
    const RouteRequest& request = world.request;
    if (at == request.target) return 0;
    if (at.seq > request.target.seq) return std::nullopt;
    std::optional<std::uint64_t> best;
    const auto offer = [&](std::uint64_t cost, std::size_t next) {
        const auto rest = least_cost(world, next);
        if (rest && (!best || cost + *rest < *best)) best = cost + *rest;
    };
    if (index + 1 < world.states.size()) {
        const StateName& next = world.states[index + 1];
        if (next.line == at.line && at.seq >= request.floor) {
            offer(next.travelled - at.travelled + 2 * kRequest, index + 1);
        }
    }
    for (const RoadEntry& road : world.map.roads) {
        if (road.from != at || request.avoid.contains(road.delta.parts[0].key)) continue;
        const auto next = std::ranges::find(world.states, road.to);
        offer(road.delta.bytes() + kRequest, static_cast<std::size_t>(next - world.states.begin()));
    }
    return best;
}

std::optional<std::uint64_t> least_cost(const World& world) {
    std::optional<std::uint64_t> best;
    for (std::size_t i = 0; i < world.states.size(); ++i) {
        const StateName& state = world.states[i];
        const auto rest = least_cost(world, i);
        if (!rest) continue;
        const auto offer = [&](std::uint64_t cost) {
            if (!best || cost + *rest < *best) best = cost + *rest;
        };
        if (world.request.here && *world.request.here == state) offer(0);
        if (world.request.base && *world.request.base == state.digest &&
            is_landmark(world, state)) {
            offer(0);
        }
        for (const AnchorEntry& anchor : world.map.anchors) {
            if (anchor.state != state) continue;
            if (world.request.avoid.contains(anchor.files[0].parts[0].key)) continue;
            offer(anchor.bytes() + kRequest);
        }
    }
    return best;
}

/// Whether the legs really lead where the route says, over what may be used.
void expect_sound(const World& world, const Route& route) {
    StateName at = route.from;
    for (const Leg& leg : route.legs) {
        EXPECT_EQ(leg.from, at);
        EXPECT_LT(leg.from.seq, leg.to.seq);
        if (!leg.road) {
            EXPECT_EQ(leg.from.line, leg.to.line);
            EXPECT_GE(leg.from.seq, world.request.floor);
        } else {
            EXPECT_FALSE(world.request.avoid.contains(leg.road->parts[0].key));
        }
        at = leg.to;
    }
    EXPECT_EQ(at, world.request.target);
}

TEST(Route, IsTheCheapestOfAllWays) {
    Random random(4);
    int reached = 0;
    for (int round = 0; round < 20'000; ++round) {
        const World world = random_world(random);
        const auto route = plan_route(world.map, world.request);
        const auto best = least_cost(world);
        ASSERT_EQ(route.has_value(), best.has_value()) << "round " << round;
        if (!route) continue;
        ++reached;
        expect_sound(world, *route);
        ASSERT_EQ(route->bytes + route->objects * kRequest, *best)
            << "round " << round << ": " << described(route);
    }
    EXPECT_GT(reached, 5'000);
}

}  // namespace
}  // namespace wisp::testing
