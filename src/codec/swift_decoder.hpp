// Coded bytes of one block of the swift codec into changes, in two phases: doc/format.md
// section 12.
//
// Which elements change is read without a base; what they become, from the old bits of those alone.
// So the holder of the weights gathers what is touched and need not walk over the rest. Every byte
// is held against its rule before it is used, as in block_decoder.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "codec/dense_decoder.hpp"
#include "codec/rans_reader.hpp"
#include "codec/swift_steps.hpp"
#include "kernel/overlaid_block.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// A block between its two phases. The coded bytes must outlive it.
struct SwiftReading {
    const DtypeTraits* traits = nullptr;
    RansReader rans;
    unsigned single_from = 0;
    std::span<const std::byte> signs;
    std::span<const std::byte> dense_block;  // as it is coded; empty: what changes is named
};

/// The first phase. Replaces `positions`, ascending and below `element_count`. No coded bytes name
/// none; a dense block names every element. `ahead`: the old block, if it is there, is asked for as
/// positions are read.
Result<SwiftReading> read_swift_positions(std::span<const std::byte> coded,
                                          std::size_t element_count, const DtypeTraits& traits,
                                          std::vector<std::uint32_t>& positions,
                                          const std::byte* ahead = nullptr);

/// One per thread: it keeps its buffers between blocks.
class SwiftDecoder {
  public:
    /// The second phase: the new bits at the positions just read, given the old ones side by side.
    /// Those of a dense block may be equal.
    Result<void> values(const SwiftReading& reading, std::span<const std::byte> old_bits,
                        std::span<std::byte> new_bits);

    /// Whether the block names what changes, not every element.
    static bool is_sparse(std::span<const std::byte> coded);

    /// Both phases over an old block, without changes over it where the coded one is not sparse.
    /// Replaces `changes`; equal elements are left out.
    Result<void> decode(std::span<const std::byte> coded, const OverlaidBlock& old_block,
                        const DtypeTraits& traits, BlockChanges& changes);

  private:
    SwiftSteps steps_;
    DenseDecoder dense_;
};

}  // namespace wisp
