#include "fetch/state_search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.hpp"

namespace wisp {

Result<StateName> find_state(const CommitLog& log, const LogEntry& head, const RoadMap& map,
                             std::uint64_t step) {
    if (head.commit.state.step <= step) return head.commit.state;
    std::vector<StateName> landmarks;
    for (const AnchorEntry& anchor : map.anchors) landmarks.push_back(anchor.state);
    for (const RoadEntry& road : map.roads) {
        landmarks.push_back(road.from);
        landmarks.push_back(road.to);
    }
    std::ranges::sort(landmarks, std::ranges::greater{}, &StateName::seq);
    std::uint64_t seq = head.commit.state.seq;
    for (const StateName& landmark : landmarks) {
        if (landmark.step <= step) {
            // Between this landmark and the one above: only the commits there need to be read.
            // Commits from before a branch are in another log; its landmarks are all there is.
            for (std::uint64_t at = seq; at > std::max(landmark.seq, log.first_seq());) {
                WISP_ASSIGN(const LogEntry entry, log.require(at - 1));
                if (entry.commit.state.step <= step) return entry.commit.state;
                at = entry.commit.state.seq;
            }
            return landmark;
        }
        seq = std::min(seq, landmark.seq);
    }
    while (seq > log.first_seq() && seq > head.commit.floor) {
        WISP_ASSIGN(const LogEntry entry, log.require(seq - 1));
        if (entry.commit.state.seq != 0 && entry.commit.state.step <= step) {
            return entry.commit.state;
        }
        seq = std::min(seq - 1, entry.commit.state.seq);
    }
    return fail(ErrorKind::kGap, fmt::format("no state at or before step {} is retained; the "
                                             "oldest is listed by 'wisp status'",
                                             step));
}

}  // namespace wisp
