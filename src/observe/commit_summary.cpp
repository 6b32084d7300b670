#include "observe/commit_summary.hpp"

namespace wisp {

CommitSummary summary_of(const LogEntry& entry) {
    const Commit& commit = entry.commit;
    CommitSummary line;
    line.seq = commit.seq;
    line.epoch = commit.epoch;
    line.step = commit.state.step;
    line.kind = commit.kind;
    line.writer = commit.writer;
    line.signer = entry.signer.key_id;
    line.time_ms = commit.time_ms;
    line.delta_bytes = commit.delta ? commit.delta->bytes() : 0;
    if (commit.kind == CommitKind::kAnchor && commit.manifest &&
        !commit.manifest->anchors.empty()) {
        line.anchor_bytes = commit.manifest->anchors.back().bytes();
    }
    line.changed_elements = commit.changed_elements;
    line.total_elements = commit.total_elements;
    line.state = commit.state.digest;
    line.rewind_from = commit.rewind_from;
    line.hash = entry.hash;
    return line;
}

}  // namespace wisp
