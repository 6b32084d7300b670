#include "follow/fetch_plan.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "base/limits.hpp"

namespace wisp {
namespace {

// What one request is worth in bytes: about the time to the first byte of a far store.
constexpr std::uint64_t kRequestBytes = 64 << 10;
constexpr std::uint64_t kUnreached = std::numeric_limits<std::uint64_t>::max();

struct Arrival {
    std::uint64_t cost = kUnreached;
    std::uint64_t bytes = 0;
    std::uint64_t objects = 0;
    // How it was reached: a start, or a step of the plan from another state.
    FetchPlan::Start start = FetchPlan::Start::kHere;
    const AnchorEntry* anchor = nullptr;
    std::uint64_t before = 0;
    const MergedDelta* merged_delta = nullptr;
    bool by_fetch_step = false;
};

struct Node {
    StateName state;
    Arrival best;
};

class Planner {
  public:
    Planner(const Manifest& manifest, const FetchPlanRequest& request)
        : manifest_(manifest), request_(request) {
        add(request.target);
        if (request.here) add(*request.here);
        for (const AnchorEntry& anchor : manifest.anchors) add(anchor.state);
        for (const MergedDelta& merged_delta : manifest.merged_deltas) {
            add(merged_delta.from);
            add(merged_delta.to);
        }
    }

    std::optional<FetchPlan> plan() {
        start();
        // Every step of a plan leads forward, so one pass in order of seq finds the cheapest
        // arrivals.
        for (auto at = nodes_.begin(); at != nodes_.end(); ++at) {
            if (at->second.best.cost == kUnreached) continue;
            if (at->first == request_.target.seq) break;
            if (const auto next = std::next(at); next != nodes_.end())
                walk(at->second, next->second);
            for (const MergedDelta& merged_delta : manifest_.merged_deltas) {
                if (merged_delta.from == at->second.state) drive(at->second, merged_delta);
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
                arrival.start = here ? FetchPlan::Start::kHere : FetchPlan::Start::kBase;
                offer(node, arrival);
            }
        }
        for (const AnchorEntry& anchor : manifest_.anchors) {
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
            arrival.start = FetchPlan::Start::kAnchor;
            arrival.anchor = &anchor;
            offer(at->second, arrival);
        }
    }

    /// Along the single deltas, which are there from the floor on and inside one chain.
    void walk(const Node& from, Node& to) const {
        if (from.state.chain_id != to.state.chain_id || from.state.seq < request_.floor) return;
        if (to.state.cumulative_delta_bytes < from.state.cumulative_delta_bytes ||
            to.state.state_index < from.state.state_index)
            return;
        // A state reached by a damaged single delta cannot be walked to.
        if (request_.avoid.contains(std::to_string(to.state.seq))) return;
        Arrival arrival;
        const std::uint64_t bytes =
            to.state.cumulative_delta_bytes - from.state.cumulative_delta_bytes;
        const std::uint64_t objects = 2 * (to.state.state_index - from.state.state_index);
        arrival.bytes = from.best.bytes + bytes;
        arrival.objects = from.best.objects + objects;
        arrival.cost = from.best.cost + bytes + objects * kRequestBytes;
        arrival.by_fetch_step = true;
        arrival.before = from.state.seq;
        offer(to, arrival);
    }

    void drive(const Node& from, const MergedDelta& merged_delta) {
        const auto to = nodes_.find(merged_delta.to.seq);
        if (to == nodes_.end() || to->second.state != merged_delta.to ||
            !usable(merged_delta.delta))
            return;
        Arrival arrival;
        arrival.bytes = from.best.bytes + merged_delta.delta.bytes();
        arrival.objects = from.best.objects + merged_delta.delta.parts.size();
        arrival.cost = from.best.cost + merged_delta.delta.bytes() +
                       merged_delta.delta.parts.size() * kRequestBytes;
        arrival.by_fetch_step = true;
        arrival.before = from.state.seq;
        arrival.merged_delta = &merged_delta;
        offer(to->second, arrival);
    }

    std::optional<FetchPlan> trace() const {
        const Node* node = &nodes_.at(request_.target.seq);
        if (node->best.cost == kUnreached) return std::nullopt;
        FetchPlan plan;
        plan.bytes = node->best.bytes;
        plan.objects = node->best.objects;
        while (node->best.by_fetch_step) {
            const Node& before = nodes_.at(node->best.before);
            FetchStep fetch_step{before.state, node->state, std::nullopt};
            if (node->best.merged_delta != nullptr)
                fetch_step.merged_delta = node->best.merged_delta->delta;
            plan.steps.push_back(std::move(fetch_step));
            node = &before;
        }
        std::ranges::reverse(plan.steps);
        plan.start = node->best.start;
        plan.from = node->state;
        if (node->best.anchor != nullptr) plan.anchor = *node->best.anchor;
        return plan;
    }

    const Manifest& manifest_;
    const FetchPlanRequest& request_;
    std::map<std::uint64_t, Node> nodes_;
};

}  // namespace

std::size_t batch_length(std::span<const std::uint64_t> delta_bytes) {
    // Each delta that is decoded over others costs a few buffers.
    constexpr std::size_t kMost = 32;
    // A change takes a byte of the file, and a position and the bits before and after in memory.
    constexpr std::uint64_t kHeldPerFileByte = sizeof(std::uint32_t) + 2 * sizeof(float);
    std::uint64_t left = limits::kChangeBufferBytes / kHeldPerFileByte;
    std::size_t length = 0;
    while (length < std::min(kMost, delta_bytes.size()) && delta_bytes[length] <= left) {
        left -= delta_bytes[length++];
    }
    return std::max<std::size_t>(length, 1);
}

std::optional<FetchPlan> plan_fetch(const Manifest& manifest, const FetchPlanRequest& request) {
    return Planner(manifest, request).plan();
}

}  // namespace wisp
