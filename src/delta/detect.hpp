// Finds exactly which elements of a block differ, by their bits, and how the digest moves.
#pragma once

#include <span>

#include "checkpoint/blocks.hpp"
#include "kernel/kernels.hpp"
#include "kernel/touched.hpp"
#include "wisp/state.hpp"

namespace wisp {

struct DetectedBlock {
    BlockChanges changes;
    TouchedSums touched;
    StateDigest old_state;  // of the whole old block; zero unless asked for
};

/// What was compared is read again at the changes; in parts of this size it is still in cache.
inline constexpr std::size_t kDetectElements = 1U << 15;

/// One per thread: it keeps its buffer between blocks.
class Detector {
  public:
    /// Positions and new bits alone, appended to `changes`, and the digest of what was old: all
    /// that must be taken from memory before others may write there. The parts are the elements of
    /// the block `range` from `first` on, at most kDetectElements of them.
    void find(std::span<const std::byte> old_part, std::span<const std::byte> new_part,
              std::size_t first, const BlockRange& range, const ScanDigest& digest,
              BlockChanges& changes);

    /// Both blocks are the elements of `range`. With `digest_old` the old block's digest is taken
    /// in the same pass over memory.
    void detect(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                const BlockRange& range, const TensorSeed& seed, bool digest_old,
                DetectedBlock& found);

  private:
    std::vector<std::uint32_t> positions_;
};

}  // namespace wisp
