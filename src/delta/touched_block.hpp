// One block of weights that lie elsewhere, under all deltas that touch it: which of its words they
// touch, and, once those are known, what they become.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/blocks.hpp"
#include "codec/swift_decoder.hpp"
#include "delta/delta_chain.hpp"
#include "wisp/result.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// One block that a chain of deltas touches.
struct TouchedBlock {
    /// What one block or tile of a delta does to it; the decoder stands between positions and
    /// values.
    struct Part {
        std::size_t delta = 0;
        std::size_t delta_tensor = 0;  // in the delta's own order
        std::size_t index = 0;         // of the block or tile in it
        SwiftDecoder decoder;
        std::vector<std::uint32_t> positions;
    };
    BlockRange range;
    std::vector<Part> parts;           // in the order of the deltas
    std::vector<std::uint32_t> words;  // that any part touches, from the block's first on
};

/// Fills in positions and words. kCorrupt where a delta's make no sense.
Result<void> read_positions(TouchedBlock& block, const DeltaChain& chain, const Schema& schema);

/// What the deltas make of a block.
struct RunBlock {
    ChainSums sums;
    BlockChanges changes;
};

/// `old_words` are those of block.words, side by side. Errors are those of TouchedWords::run(). The
/// block is used up. `room`: kept between blocks by each thread, so that it need not be had anew.
Result<RunBlock> run_touched_block(TouchedBlock& block, const DeltaChain& chain,
                                   const std::byte* old_words, std::vector<std::uint64_t>& room);

}  // namespace wisp
