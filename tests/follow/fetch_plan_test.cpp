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
StateName state_of(std::uint64_t seq, std::uint64_t each, std::uint64_t chain_id = 1) {
    return {seq, seq, {seq, seq}, chain_id, seq * each, seq};
}

AnchorEntry anchor_of(const StateName& state, std::uint64_t bytes) {
    AnchorEntry anchor = anchor_at(state.seq, bytes);
    anchor.state = state;
    return anchor;
}

MergedDelta merged_delta_of(const StateName& from, const StateName& to, std::uint64_t bytes) {
    MergedDelta merged_delta = merged_between(from.seq, to.seq, bytes);
    merged_delta.from = from;
    merged_delta.to = to;
    return merged_delta;
}

FetchPlanRequest to(const StateName& target) {
    FetchPlanRequest request;
    request.target = target;
    return request;
}

std::string described(const std::optional<FetchPlan>& plan) {
    if (!plan) return "none";
    std::string text = plan->start == FetchPlan::Start::kHere   ? "here "
                       : plan->start == FetchPlan::Start::kBase ? "base "
                                                                : "anchor ";
    text += std::to_string(plan->from.seq);
    for (const FetchStep& fetch_step : plan->steps) {
        text += (fetch_step.merged_delta ? " merged delta " : " walk ") +
                std::to_string(fetch_step.to.seq);
    }
    return text;
}

TEST(FetchPlan, TakesTheSinglesWhenTheyAreCheap) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(1, 100), 100 * kMega),
                        anchor_of(state_of(9, 100), 100 * kMega)};
    FetchPlanRequest request = to(state_of(10, 100));
    request.here = state_of(7, 100);
    const auto plan = plan_fetch(manifest, request);
    EXPECT_EQ(described(plan), "here 7 walk 9 walk 10");
    EXPECT_EQ(plan->bytes, 300U);
    EXPECT_EQ(plan->objects, 6U) << "a commit and a delta each";
}

TEST(FetchPlan, TakesAnAnchorWhenTheSinglesOutweighIt) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(9, kMega), 4 * kMega)};
    FetchPlanRequest request = to(state_of(10, kMega));
    request.here = state_of(1, kMega);
    const auto plan = plan_fetch(manifest, request);
    EXPECT_EQ(described(plan), "anchor 9 walk 10");
    ASSERT_TRUE(plan->anchor);
    EXPECT_EQ(plan->bytes, 5 * kMega);
    EXPECT_EQ(plan->objects, 3U);
}

TEST(FetchPlan, TakesMergedDeltasWhenTheyAreShorter) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(1, kMega), 4 * kMega)};
    manifest.merged_deltas = {merged_delta_of(state_of(1, kMega), state_of(5, kMega), 2 * kMega),
                              merged_delta_of(state_of(5, kMega), state_of(7, kMega), kMega)};
    EXPECT_EQ(described(plan_fetch(manifest, to(state_of(8, kMega)))),
              "anchor 1 merged delta 5 merged delta 7 walk 8");
    EXPECT_EQ(plan_fetch(manifest, to(state_of(8, kMega)))->bytes, 8 * kMega);
}

TEST(FetchPlan, CountsWhatARequestCosts) {
    // Four singles are fewer bytes than one merged delta, but eight requests.
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(1, 10), 1000)};
    manifest.merged_deltas = {merged_delta_of(state_of(1, 10), state_of(5, 10), 1000)};
    EXPECT_EQ(described(plan_fetch(manifest, to(state_of(5, 10)))), "anchor 1 merged delta 5");
    manifest.merged_deltas[0].delta.parts[0].bytes = 40 + 8 * kRequest;
    EXPECT_EQ(described(plan_fetch(manifest, to(state_of(5, 10)))), "anchor 1 walk 5");
}

TEST(FetchPlan, StartsFromABaseThatIsAStateOfTheRun) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(1, kMega), 100 * kMega)};
    FetchPlanRequest request = to(state_of(3, kMega));
    request.base = state_of(1, kMega).digest;
    EXPECT_EQ(described(plan_fetch(manifest, request)), "base 1 walk 3");
    request.base = StateDigest{7, 8};
    EXPECT_EQ(described(plan_fetch(manifest, request)), "anchor 1 walk 3");
}

TEST(FetchPlan, TakesAnAnchorOnABaseOnlyWithThatBase) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(1, kMega), 100)};
    manifest.anchors[0].base = StateDigest{7, 8};
    FetchPlanRequest request = to(state_of(2, kMega));
    EXPECT_EQ(described(plan_fetch(manifest, request)), "none");
    request.base = StateDigest{7, 9};
    EXPECT_EQ(described(plan_fetch(manifest, request)), "none");
    request.base = StateDigest{7, 8};
    EXPECT_EQ(described(plan_fetch(manifest, request)), "anchor 1 walk 2");
}

TEST(FetchPlan, GoesNowhereWhenItIsThere) {
    FetchPlanRequest request = to(state_of(5, kMega));
    request.here = request.target;
    const auto plan = plan_fetch({}, request);
    EXPECT_EQ(described(plan), "here 5");
    EXPECT_EQ(plan->bytes, 0U);
}

TEST(FetchPlan, DoesNotWalkBelowTheFloor) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(6, kMega), 50 * kMega)};
    FetchPlanRequest request = to(state_of(8, kMega));
    request.here = state_of(4, kMega);
    EXPECT_EQ(described(plan_fetch(manifest, request)), "here 4 walk 6 walk 8");
    request.floor = 6;
    EXPECT_EQ(described(plan_fetch(manifest, request)), "anchor 6 walk 8");
    request.floor = 7;
    EXPECT_EQ(described(plan_fetch(manifest, request)), "none");
    // A merged delta is named by the manifest, so it is there wherever it starts.
    manifest.merged_deltas = {merged_delta_of(state_of(4, kMega), state_of(8, kMega), kMega)};
    EXPECT_EQ(described(plan_fetch(manifest, request)), "here 4 merged delta 8");
}

TEST(FetchPlan, DoesNotWalkFromOneChainToAnother) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(1, kMega, 1), kMega)};
    EXPECT_EQ(described(plan_fetch(manifest, to(state_of(3, kMega, 2)))), "none");
    manifest.anchors.push_back(anchor_of(state_of(2, kMega, 2), 90 * kMega));
    EXPECT_EQ(described(plan_fetch(manifest, to(state_of(3, kMega, 2)))), "anchor 2 walk 3");
}

TEST(FetchPlan, KeepsAwayFromWhatIsDamaged) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(1, kMega), kMega),
                        anchor_of(state_of(3, kMega), 9 * kMega)};
    manifest.merged_deltas = {merged_delta_of(state_of(1, kMega), state_of(4, kMega), kMega)};
    FetchPlanRequest request = to(state_of(4, kMega));
    EXPECT_EQ(described(plan_fetch(manifest, request)), "anchor 1 merged delta 4");
    request.avoid = {manifest.merged_deltas[0].delta.parts[0].key};
    EXPECT_EQ(described(plan_fetch(manifest, request)), "anchor 1 walk 3 walk 4");
    request.avoid.insert("3");  // a single on the way to state 3
    EXPECT_EQ(described(plan_fetch(manifest, request)), "anchor 3 walk 4");
    request.avoid.insert(manifest.anchors[1].files[0].parts[0].key);
    EXPECT_EQ(described(plan_fetch(manifest, request)), "none");
}

TEST(FetchPlan, IgnoresWhatLiesBehindTheTarget) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(2, kMega), kMega), anchor_of(state_of(9, kMega), 1)};
    manifest.merged_deltas = {merged_delta_of(state_of(2, kMega), state_of(8, kMega), 1)};
    FetchPlanRequest request = to(state_of(5, kMega));
    request.here = state_of(7, kMega);
    EXPECT_EQ(described(plan_fetch(manifest, request)), "anchor 2 walk 5");
}

TEST(FetchPlan, NeedsTheSameStateNotOnlyTheSameSeq) {
    Manifest manifest;
    manifest.anchors = {anchor_of(state_of(2, kMega), kMega)};
    StateName other = state_of(2, kMega);
    other.digest = {99, 99};
    manifest.merged_deltas = {merged_delta_of(other, state_of(5, kMega), 1)};
    EXPECT_EQ(described(plan_fetch(manifest, to(state_of(5, kMega)))), "anchor 2 walk 5");
}

/// A random run: its states, a map over it, and a wish.
struct World {
    std::vector<StateName> states;
    Manifest manifest;
    FetchPlanRequest request;
};

World random_world(Random& random) {
    World world;
    const std::uint64_t count = 2 + random.below(9);
    StateName state;
    for (std::uint64_t i = 1; i <= count; ++i) {
        const bool new_chain = i == 1 || random.below(6) == 0;
        state.seq += 1 + random.below(3);
        state.step = state.seq;
        state.digest = {state.seq, i};
        if (new_chain) ++state.chain_id;
        state.cumulative_delta_bytes += new_chain ? 0 : random.below(4) * 100'000;
        state.state_index = i;
        world.states.push_back(state);
        if (random.below(3) == 0) {
            add_anchor(world.manifest, anchor_of(state, random.below(6) * 200'000));
        }
    }
    for (std::uint64_t merged_deltas = random.below(6); merged_deltas > 0; --merged_deltas) {
        const std::uint64_t from = random.below(count);
        const std::uint64_t to = random.below(count);
        if (from >= to) continue;
        add_merged_delta(world.manifest, merged_delta_of(world.states[from], world.states[to],
                                                         random.below(8) * 100'000));
    }
    world.request.target = world.states[random.below(count)];
    if (random.below(2) == 0) world.request.here = world.states[random.below(count)];
    if (random.below(3) == 0) world.request.base = world.states[random.below(count)].digest;
    if (random.below(3) == 0) world.request.floor = world.states[random.below(count)].seq;
    for (const MergedDelta& merged_delta : world.manifest.merged_deltas) {
        if (random.below(5) == 0) world.request.avoid.insert(merged_delta.delta.parts[0].key);
    }
    for (const AnchorEntry& anchor : world.manifest.anchors) {
        if (random.below(6) == 0) world.request.avoid.insert(anchor.files[0].parts[0].key);
    }
    return world;
}

/// Whether the planner could know of this state: nothing but map, target and `here` name states.
bool is_landmark(const World& world, const StateName& state) {
    const auto& [target, floor, here, base, avoid] = world.request;
    return state == target || (here && state == *here) ||
           std::ranges::any_of(world.manifest.anchors, [&](auto& a) { return a.state == state; }) ||
           std::ranges::any_of(world.manifest.merged_deltas,
                               [&](auto& r) { return r.from == state || r.to == state; });
}

/// The least cost from state `index` on, by trying everything.
std::optional<std::uint64_t> least_cost(const World& world, std::size_t index) {
    const StateName& at = world.states[index];
    const FetchPlanRequest& request = world.request;
    if (at == request.target) return 0;
    if (at.seq > request.target.seq) return std::nullopt;
    std::optional<std::uint64_t> best;
    const auto offer = [&](std::uint64_t cost, std::size_t next) {
        const auto rest = least_cost(world, next);
        if (rest && (!best || cost + *rest < *best)) best = cost + *rest;
    };
    if (index + 1 < world.states.size()) {
        const StateName& next = world.states[index + 1];
        if (next.chain_id == at.chain_id && at.seq >= request.floor) {
            offer(next.cumulative_delta_bytes - at.cumulative_delta_bytes + 2 * kRequest,
                  index + 1);
        }
    }
    for (const MergedDelta& merged_delta : world.manifest.merged_deltas) {
        if (merged_delta.from != at || request.avoid.contains(merged_delta.delta.parts[0].key))
            continue;
        const auto next = std::ranges::find(world.states, merged_delta.to);
        offer(merged_delta.delta.bytes() + kRequest,
              static_cast<std::size_t>(next - world.states.begin()));
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
        for (const AnchorEntry& anchor : world.manifest.anchors) {
            if (anchor.state != state) continue;
            if (world.request.avoid.contains(anchor.files[0].parts[0].key)) continue;
            offer(anchor.bytes() + kRequest);
        }
    }
    return best;
}

/// Whether the steps really lead where the plan says, over what may be used.
void expect_sound(const World& world, const FetchPlan& plan) {
    StateName at = plan.from;
    for (const FetchStep& fetch_step : plan.steps) {
        EXPECT_EQ(fetch_step.from, at);
        EXPECT_LT(fetch_step.from.seq, fetch_step.to.seq);
        if (!fetch_step.merged_delta) {
            EXPECT_EQ(fetch_step.from.chain_id, fetch_step.to.chain_id);
            EXPECT_GE(fetch_step.from.seq, world.request.floor);
        } else {
            EXPECT_FALSE(world.request.avoid.contains(fetch_step.merged_delta->parts[0].key));
        }
        at = fetch_step.to;
    }
    EXPECT_EQ(at, world.request.target);
}

TEST(FetchPlan, IsTheCheapestOfAllWays) {
    Random random(4);
    int reached = 0;
    for (int round = 0; round < 20'000; ++round) {
        const World world = random_world(random);
        const auto plan = plan_fetch(world.manifest, world.request);
        const auto best = least_cost(world);
        ASSERT_EQ(plan.has_value(), best.has_value()) << "round " << round;
        if (!plan) continue;
        ++reached;
        expect_sound(world, *plan);
        ASSERT_EQ(plan->bytes + plan->objects * kRequest, *best)
            << "round " << round << ": " << described(plan);
    }
    EXPECT_GT(reached, 5'000);
}

TEST(FetchPlan, TakesTogetherWhatFitsIntoMemory) {
    constexpr std::uint64_t kMebibyte = 1 << 20;
    using Sizes = std::vector<std::uint64_t>;
    EXPECT_EQ(batch_length(Sizes(3, kMebibyte)), 3U);
    EXPECT_EQ(batch_length(Sizes(31, kMebibyte)), 10U);
    EXPECT_EQ(batch_length(Sizes(100, 1)), 32U);
    // Too much by itself: nobody can do better than to take it alone.
    EXPECT_EQ(batch_length(Sizes{900 * kMebibyte, 1}), 1U);
    EXPECT_EQ(batch_length(Sizes{UINT64_MAX, UINT64_MAX}), 1U);
}

}  // namespace
}  // namespace wisp::testing
