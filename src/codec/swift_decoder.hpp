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
#include "kernel/overlaid_block.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// One per thread: it keeps its buffers between blocks.
class SwiftDecoder {
  public:
    /// Replaces `positions`, ascending and below `element_count`. No coded bytes name none; a dense
    /// block names every element. `coded` must outlive the call of values().
    Result<void> positions(std::span<const std::byte> coded, std::size_t element_count,
                           const DtypeTraits& traits, std::vector<std::uint32_t>& positions);

    /// The new bits at the positions just read, given the old ones side by side. Those of a dense
    /// block may be equal. Once per block.
    Result<void> values(std::span<const std::byte> old_bits, std::span<std::byte> new_bits);

    /// Whether the block names what changes, not every element.
    static bool is_sparse(std::span<const std::byte> coded);

    /// Both phases over an old block, without changes over it where the coded one is not sparse.
    /// Replaces `changes`; equal elements are left out.
    Result<void> decode(std::span<const std::byte> coded, const OverlaidBlock& old_block,
                        const DtypeTraits& traits, BlockChanges& changes);

  private:
    Result<void> swift_positions(ByteReader in, std::size_t element_count,
                                 std::vector<std::uint32_t>& positions);
    const DtypeTraits* traits_ = nullptr;
    RansReader rans_;                         // stands between positions and values
    std::span<const std::byte> dense_block_;  // as it is coded
    DenseDecoder dense_;
};

}  // namespace wisp
