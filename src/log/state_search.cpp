#include "log/state_search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace {

/// States that the manifest names, newest first.
Result<std::vector<StateName>> landmarks_of(const Lineage& history) {
    WISP_ASSIGN(const Manifest manifest, history.log().manifest_of(history.head()));
    std::vector<StateName> landmarks;
    for (const AnchorEntry& anchor : manifest.anchors) landmarks.push_back(anchor.state);
    for (const MergedDelta& merged_delta : manifest.merged_deltas) {
        landmarks.push_back(merged_delta.from);
        landmarks.push_back(merged_delta.to);
    }
    std::ranges::sort(landmarks, std::ranges::greater{}, &StateName::seq);
    return landmarks;
}

/// The state before one that a commit of this log made; nothing where history begins.
Result<std::optional<StateName>> state_before(Lineage& history, const StateName& state) {
    if (state.seq < history.log().first_seq()) return std::nullopt;
    WISP_ASSIGN(const LogEntry maker, history.at(state.seq));
    WISP_ASSIGN(const auto before, history.before(maker));
    if (!before || before->commit.state.seq == 0) return std::nullopt;
    return before->commit.state;
}

/// The newest state, back from the head, for which `wanted` holds. From a landmark for which it
/// does not, the way goes on at once; below one for which it does there is no need to look.
template <class Wanted>
Result<std::optional<StateName>> search_back(Lineage& history, Wanted wanted) {
    StateName at = history.head().commit.state;
    if (wanted(at)) return at;
    WISP_ASSIGN(const auto landmarks, landmarks_of(history));
    for (const StateName& landmark : landmarks) {
        if (landmark.seq > at.seq) continue;
        if (!wanted(landmark)) {
            at = landmark;
            continue;
        }
        // Between the two: only the commits there need to be read. Those from before a branch are
        // in another log; its landmarks are all there is.
        for (;;) {
            WISP_ASSIGN(const auto before, state_before(history, at));
            if (!before || before->seq <= landmark.seq) return landmark;
            if (wanted(*before)) return *before;
            at = *before;
        }
    }
    while (at.seq > history.head().commit.floor) {
        WISP_ASSIGN(const auto before, state_before(history, at));
        if (!before) return std::nullopt;
        if (wanted(*before)) return *before;
        at = *before;
    }
    return std::nullopt;
}

}  // namespace

Result<StateName> find_state(Lineage& history, std::uint64_t step) {
    WISP_ASSIGN(const auto found,
                search_back(history, [&](const StateName& state) { return state.step <= step; }));
    if (found) return *found;
    return fail(ErrorKind::kGap, fmt::format("no state at or before step {} is retained; the "
                                             "oldest is listed by 'wisp status'",
                                             step));
}

Result<StateName> find_state_by_index(Lineage& history, std::uint64_t index) {
    WISP_ASSIGN(const auto found, search_back(history, [&](const StateName& state) {
                    return state.state_index <= index;
                }));
    if (found && found->state_index == index) return *found;
    return fail(ErrorKind::kGap, fmt::format("state number {} of {} cannot be found", index,
                                             shown(history.log().where().url)));
}

}  // namespace wisp
