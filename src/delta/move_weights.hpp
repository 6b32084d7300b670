// Deltas applied to weights that lie in memory, all or none, with the way back.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "wisp/delta.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

namespace wisp {

struct MoveRequest {
    StateDigest known;  // of the weights as they are; not computed again
    const std::vector<std::filesystem::path>* deltas = nullptr;
    unsigned threads = 0;
    /// As in MemoryReplicaOptions; what it returned is left in `entered`.
    const std::function<Result<std::shared_ptr<void>>()>* enter = nullptr;
    std::shared_ptr<void>* entered = nullptr;
    std::optional<StateDigest> wanted = {};  // as in deliver_changes()
};

/// Everything is proven before the first byte is overwritten. What is overwritten is kept in
/// `kept`, so that a move which is stopped on its way leaves nothing behind.
Result<ApplyReport> move_weights(MutableWeights& weights, const MoveRequest& request,
                                 std::vector<MovedBlock>& kept);

/// Puts the new bits of one block in place.
void write_block(MutableWeights& weights, const MovedBlock& moved);
/// The same of many, on several threads: blocks do not overlap.
void write_blocks(MutableWeights& weights, std::span<const MovedBlock> moved, unsigned threads);
/// Puts the old bits back.
void undo_move(MutableWeights& weights, const std::vector<MovedBlock>& kept);
/// Puts the new bits in place again.
void redo_move(MutableWeights& weights, const std::vector<MovedBlock>& kept);

}  // namespace wisp
