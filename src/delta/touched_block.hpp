// One block of weights that lie elsewhere, under all deltas that touch it: which of its words they
// touch, and, once those are known, what they become.
#pragma once

#include <bit>
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
    /// What one block or tile of a delta does to it.
    struct Part {
        std::size_t delta = 0;
        std::size_t delta_tensor = 0;  // in the delta's own order
        std::size_t index = 0;         // of the block or tile in it
        SwiftReading reading;          // between positions and values
        std::vector<std::uint32_t> positions;
    };
    BlockRange range;
    std::vector<Part> parts;           // in the order of the deltas
    std::size_t word_count = 0;        // that any part touches
    std::vector<std::uint32_t> words;  // those, from the block's first on; of one part: none

    unsigned log2_per_word() const {
        return static_cast<unsigned>(std::countr_zero(8 / range.element_bytes));
    }
    /// Calls body(word) for each of them, ascending.
    template <class Body>
    void each_word(Body&& body) const {
        if (parts.size() != 1) {
            for (const std::uint32_t word : words) body(word);
            return;
        }
        std::uint32_t last = ~0U;
        for (const std::uint32_t position : parts[0].positions) {
            const std::uint32_t word = position >> log2_per_word();
            if (word != last) body(word);
            last = word;
        }
    }
};

/// One per thread: kept between blocks, so that memory need not be had anew.
struct TouchedWorker {
    SwiftDecoder decoder;
    std::vector<std::uint64_t> words;
    std::vector<std::byte> old_bits;
    std::vector<std::byte> new_bits;
};

/// Fills in positions and words. kCorrupt where a delta's make no sense.
Result<void> read_positions(TouchedBlock& block, const DeltaChain& chain, const Schema& schema);

/// What the deltas make of a block.
struct RunBlock {
    ChainSums sums;
    BlockChanges changes;
};

/// `old_words` are those of the block, side by side. Errors are those of TouchedWords::run(). The
/// block is used up.
Result<RunBlock> run_touched_block(TouchedBlock& block, const DeltaChain& chain,
                                   const std::byte* old_words, TouchedWorker& worker);

}  // namespace wisp
