// Coded bytes of one block, and the old block they stand on, into changes: the mirror of the
// encoder.
//
// Every byte is held against its rule before it is used, so that even a block whose seal was forged
// can neither read nor write outside its element range. doc/format.md sections 7 to 11.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "codec/dense_decoder.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// One per thread: it keeps its buffers between blocks.
class BlockDecoder {
  public:
    /// Replaces `changes`. No coded bytes mean no changes. kCorrupt names the rule that is broken;
    /// a wrong old block may decode to nonsense, which the digests reveal.
    Result<void> decode(std::span<const std::byte> coded, std::span<const std::byte> old_block,
                        const DtypeTraits& traits, BlockChanges& changes);

  private:
    Result<void> decode_sparse(ByteReader& in, std::span<const std::byte> old_block,
                               const DtypeTraits& traits, BlockChanges& changes);
    DenseDecoder dense_;
};

}  // namespace wisp
