// Finds exactly which elements of a block differ, by their bits, and how the digest moves.
#pragma once

#include <span>

#include "base/blocks.hpp"
#include "kernel/kernels.hpp"
#include "kernel/touched.hpp"
#include "wisp/change_set.hpp"

namespace wisp {

struct DetectedBlock {
    BlockChanges changes;
    TouchedSums touched;
    StateDigest old_state;  // of the whole old block; zero unless asked for
};

/// One per thread: it keeps its buffer between blocks.
class Detector {
  public:
    /// Both blocks are the elements of `range`. With `digest_old` the old block's digest is taken
    /// in the same pass over memory.
    void detect(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                const BlockRange& range, const TensorSeed& seed, bool digest_old,
                DetectedBlock& found);

  private:
    std::vector<std::uint32_t> positions_;
};

}  // namespace wisp
