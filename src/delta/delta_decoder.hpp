// A verified delta, bound to the tensors it will change, decoded block by block.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "checkpoint/blocks.hpp"
#include "codec/block_decoder.hpp"
#include "codec/swift_decoder.hpp"
#include "delta/verified_delta.hpp"
#include "kernel/overlaid_block.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// One per thread: whichever the delta's codec takes.
struct BlockDecoders {
    BlockDecoder compact;
    SwiftDecoder swift;
};

/// One coded block of `codec`, compact or swift, over the old one.
Result<void> decode_block(Codec codec, std::span<const std::byte> coded,
                          const OverlaidBlock& old_block, const DtypeTraits& traits,
                          BlockDecoders& decoders, BlockChanges& changes);

/// Which tensor of the delta, if any, changes each tensor of the schema. Immutable; shared by all
/// threads. The delta must outlive it.
class BoundDelta {
  public:
    /// kInvalid when the delta changes a tensor the schema lacks, or one of another dtype or
    /// shape; kCorrupt when a position lies past the end of its tensor.
    static Result<BoundDelta> bind(const VerifiedDelta& delta, const Schema& schema);

    const VerifiedDelta& delta() const { return *delta_; }
    bool touches(const BlockRange& range) const;
    /// Which of the delta's tensors changes this tensor of the schema; it touches it.
    std::size_t tensor_of(std::size_t schema_tensor) const { return tensor_of_[schema_tensor]; }

    /// Whether decode() wants `range` as it is, without changes over it.
    bool needs_whole_block(const BlockRange& range) const;

    /// Replaces `changes` with those inside `range`, relative to its start. `range` is aligned to
    /// the delta's own blocks. Changes that change nothing are left out.
    Result<void> decode(const BlockRange& range, const OverlaidBlock& old_block,
                        BlockDecoders& decoders, BlockChanges& changes) const;

  private:
    static constexpr std::size_t kUntouched = SIZE_MAX;
    explicit BoundDelta(const VerifiedDelta& delta) : delta_(&delta) {}
    /// Of a sliced delta: tile by tile, put into the order of the block.
    Result<void> decode_tiles(const DeltaTensor& tensor, const BlockRange& range,
                              const OverlaidBlock& old_block, BlockDecoders& decoders,
                              BlockChanges& changes) const;
    Result<void> decode_blocks(const DeltaTensor& tensor, const BlockRange& range,
                               const OverlaidBlock& old_block, BlockDecoders& decoders,
                               BlockChanges& changes) const;
    const VerifiedDelta* delta_;
    std::vector<std::size_t> tensor_of_;  // schema index to delta index
    std::vector<DtypeTraits> traits_;     // of the schema's tensors
};

/// Which of the tensor's blocks, or tiles, lie in `range`: the first, and one past the last.
std::pair<std::size_t, std::size_t> blocks_in(const DeltaTensor& tensor, const BlockRange& range);

/// The part of a TRL tensor's changes that lies inside `range`.
void decode_trl(const DeltaTensor& tensor, const BlockRange& range,
                std::span<const std::byte> old_block, BlockChanges& changes);

}  // namespace wisp
