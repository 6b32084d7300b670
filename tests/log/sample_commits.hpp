// Commits and their pieces, filled in with values that differ from each other.
#pragma once

#include <string>

#include "log/commit.hpp"

namespace wisp::testing {

inline std::string hex_of(char digit, std::size_t digits) {
    return std::string(digits, digit);
}

inline StateName state_at(std::uint64_t seq, std::uint64_t chain_id = 1) {
    return {seq, seq * 10, {seq, ~seq}, chain_id, seq * 1000, seq};
}

inline StoredFile delta_file(const std::string& name, std::uint64_t bytes = 100) {
    return {"", "", {{"deltas/" + name + ".safetensors", bytes, hex_of('d', 64)}}};
}

inline AnchorEntry anchor_at(std::uint64_t seq, std::uint64_t bytes = 5000,
                             std::uint64_t chain_id = 1) {
    AnchorEntry anchor;
    anchor.state = state_at(seq, chain_id);
    anchor.schema = hex_of('5', 32);
    anchor.files.push_back(
        {"model.safetensors",
         "",
         {{"anchors/step_" + std::to_string(seq) + ".safetensors", bytes, hex_of('a', 64)}}});
    return anchor;
}

inline MergedDelta merged_between(std::uint64_t from, std::uint64_t to, std::uint64_t bytes = 100) {
    return {state_at(from), state_at(to),
            delta_file("merged_" + std::to_string(from) + "_" + std::to_string(to), bytes)};
}

/// A plain step that follows commit 6.
inline Commit step_commit() {
    Commit commit;
    commit.run = hex_of('1', 32);
    commit.seq = 7;
    commit.epoch = 3;
    commit.kind = CommitKind::kDelta;
    commit.previous = {6, hex_of('2', 64)};
    commit.ancestors = {{3, hex_of('6', 64)}, {1, hex_of('7', 64)}};
    commit.nonce = hex_of('3', 32);
    commit.writer = "host:42";
    commit.owner = hex_of('4', 32);
    commit.time_ms = 1'700'000'000'123;
    commit.expires_ms = 1'700'000'060'123;
    commit.state = state_at(7);
    commit.schema = hex_of('5', 32);
    commit.total_elements = 1'000'000;
    commit.changed_elements = 5'000;
    commit.base = StateDigest{11, 12};
    commit.delta = delta_file("step_000070-e3-dddddddddddddddd", 4321);
    commit.rewind_from = 90;
    commit.floor = 2;
    commit.anchor_seq = 4;
    commit.manifest_at = {5, hex_of('8', 64)};
    return commit;
}

/// A commit that changes no state and carries a manifest.
inline Commit manifest_commit() {
    Commit commit = step_commit();
    commit.kind = CommitKind::kMerge;
    commit.state = state_at(6);
    commit.base.reset();
    commit.delta.reset();
    commit.rewind_from.reset();
    commit.manifest_at = {};
    commit.manifest.emplace();
    commit.manifest->anchors = {anchor_at(2), anchor_at(4)};
    commit.manifest->anchors[1].base = StateDigest{21, 22};
    commit.manifest->anchors[1].base_name = "org/base-model";
    commit.manifest->anchors[1].files[0].name.clear();
    commit.manifest->anchors[0].files[0].at = "../origin";
    commit.manifest->anchors[0].files[0].parts.push_back(
        {"anchors/second.part_00002_of_00002", 17, hex_of('b', 64)});
    commit.manifest->merged_deltas = {merged_between(2, 4), merged_between(4, 6)};
    return commit;
}

}  // namespace wisp::testing
