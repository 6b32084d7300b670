// How a replica that has no state, or none that leads on, comes to one: from an anchor or a base.
#include <fmt/format.h>

#include <algorithm>

#include "base/stopwatch.hpp"
#include "base/try.hpp"
#include "follow/replica_updater.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// The sliced delta that the anchor is, from zeros or a base; null: it is none.
const StoredFile* delta_of(const AnchorEntry& anchor) {
    const auto file = std::ranges::find(anchor.files, std::string(), &StoredFile::name);
    return file == anchor.files.end() || !file->head ? nullptr : &*file;
}

}  // namespace

Result<void> ReplicaUpdater::join(const FetchPlan& plan, const std::vector<WantedDelta>& wanted,
                                  const ReplicaRecord& after, Moved& moved) {
    WISP_ASSIGN(IncomingState incoming, IncomingState::make(replica_, options_.threads));
    const AnchorEntry* const anchor = plan.anchor ? &*plan.anchor : nullptr;
    if (anchor != nullptr && anchor->sliced) WISP_TRY(take_headers(*anchor, incoming));
    WISP_ASSIGN(auto held, needed_of(plan, wanted, incoming));
    incoming.need(std::move(held));
    // Everything is on this disk and proven before it is put together.
    fs::path delta;
    if (anchor != nullptr) {
        WISP_ASSIGN(delta, fetch_anchor(*anchor, incoming));
    }
    WISP_ASSIGN(const std::vector<Stage> stages, fetch_deltas(wanted, incoming.held()));
    if (anchor == nullptr || anchor->base) WISP_TRY(incoming.copy(*options_.base));
    if (anchor != nullptr) WISP_TRY(put_together(*anchor, delta, incoming));
    WISP_TRY(prove_start(plan, incoming));
    WISP_TRY(apply_staged(incoming, plan.from.digest, stages, moved));
    WISP_TRY(replica_.adopt(incoming.folder(), after));
    moved.joined = true;
    return {};
}

/// They tell of which tensors the state is, before anything of it is fetched.
Result<void> ReplicaUpdater::take_headers(const AnchorEntry& anchor, IncomingState& incoming) {
    for (const StoredFile& file : anchor.files) {
        if (file.name.empty()) continue;
        WISP_ASSIGN(const fs::path path, fetch(file));
        WISP_TRY(file.name.ends_with(".safetensors") ? incoming.take_header(path, file.name)
                                                     : incoming.take(path, file.name));
    }
    WISP_ASSIGN(const Schema* const schema, incoming.schema());
    if (schema->digest() == anchor.schema) return {};
    avoid(anchor);
    return fail(ErrorKind::kCorrupt,
                fmt::format("the anchor of step {} has headers of other tensors than its commit "
                            "says",
                            anchor.state.step));
}

Result<std::shared_ptr<const HeldSlices>> ReplicaUpdater::needed_of(
    const FetchPlan& plan, const std::vector<WantedDelta>& wanted, IncomingState& incoming) {
    const AnchorEntry* const anchor = plan.anchor ? &*plan.anchor : nullptr;
    const bool is_sliced =
        (anchor == nullptr || delta_of(*anchor) != nullptr) &&
        std::ranges::all_of(wanted, [](const WantedDelta& delta) { return !!delta.file.head; });
    if (!is_sliced || (anchor == nullptr && wanted.empty())) return nullptr;
    if (anchor != nullptr && anchor->sliced) {
        WISP_ASSIGN(const Schema* const schema, incoming.schema());
        return replica_.held_of(*schema);
    }
    WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*options_.base));
    return replica_.held_of(base.schema());
}

Result<fs::path> ReplicaUpdater::fetch_anchor(const AnchorEntry& anchor,
                                              const IncomingState& incoming) {
    fs::path delta;
    for (const StoredFile& file : anchor.files) {
        if (anchor.sliced && !file.name.empty()) continue;  // it is there
        WISP_ASSIGN(const fs::path path, fetch(file, incoming.held()));
        if (file.name.empty()) delta = path;
    }
    return delta;
}

Result<void> ReplicaUpdater::put_together(const AnchorEntry& anchor, const fs::path& delta,
                                          IncomingState& incoming) {
    if (!anchor.sliced && !anchor.base) {
        for (const StoredFile& file : anchor.files) {
            // Once more, since files of the same bytes are fetched as one.
            WISP_ASSIGN(const fs::path path, fetch(file));
            WISP_TRY(incoming.take(path, file.name));
        }
        return {};
    }
    const auto apply = [&]() -> Result<StateDigest> {
        if (anchor.sliced) return incoming.fill(delta);
        if (incoming.held() != nullptr) {
            // Only here all of it can be held against a digest.
            WISP_ASSIGN(const StateDigest base, incoming.digest());
            if (base != *anchor.base) return fail(ErrorKind::kCorrupt, "the base has changed");
        }
        WISP_ASSIGN(const ApplyReport report, incoming.apply(*anchor.base, {delta}));
        return report.result;
    };
    auto reached = apply();
    if (reached && *reached == anchor.state.digest) return {};
    if (reached) {
        reached = fail(ErrorKind::kCorrupt, "it leads to another state than its commit says");
    }
    const ErrorKind kind = reached.error().kind;
    if (kind != ErrorKind::kCorrupt && kind != ErrorKind::kWrongBase &&
        kind != ErrorKind::kInvalid) {
        return std::unexpected(std::move(reached).error());
    }
    avoid(anchor);
    return fail(ErrorKind::kCorrupt, fmt::format("the anchor of step {} cannot be taken: {}",
                                                 anchor.state.step, reached.error().text));
}

/// Read in full, unless parts of it were proven one by one.
Result<void> ReplicaUpdater::prove_start(const FetchPlan& plan, IncomingState& incoming) {
    WISP_ASSIGN(const Schema* const schema, incoming.schema());
    bool right = !plan.anchor || schema->digest() == plan.anchor->schema;
    const bool is_partial = plan.anchor && incoming.held() != nullptr;
    if (right && !is_partial) {
        WISP_ASSIGN(const StateDigest state, incoming.digest());
        right = state == plan.from.digest;
    }
    if (right) return {};
    if (plan.anchor) avoid(*plan.anchor);
    return fail(ErrorKind::kCorrupt,
                fmt::format("the anchor of step {} does not hold the state its commit says",
                            plan.from.step));
}

Result<void> ReplicaUpdater::apply_staged(IncomingState& incoming, const StateDigest& from,
                                          const std::vector<Stage>& stages, Moved& moved) {
    const Stopwatch timer;
    StateDigest state = from;
    for (std::size_t first = 0, end = 0; first < stages.size(); first = end) {
        const std::vector<fs::path> deltas = next_batch(stages, first);
        end = first + deltas.size();
        WISP_ASSIGN(const ApplyReport report, incoming.apply(state, deltas));
        state = stages[end - 1].to.digest;
        if (report.result != state) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("the deltas up to step {} lead to another state",
                                    stages[end - 1].to.step));
        }
        moved.deltas += report.deltas_applied;
        moved.changed_elements += report.changed_elements;
    }
    moved.apply_seconds += timer.seconds();
    return {};
}

}  // namespace wisp
