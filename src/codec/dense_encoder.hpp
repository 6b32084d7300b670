// A block with every element in it, changed or not: split where that is smaller, else raw.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "codec/block_layout.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// One per thread: it keeps its buffers between blocks.
class DenseEncoder {
  public:
    /// The new block in the smaller of the dense kinds.
    void encode(std::span<const std::byte> old_block, const BlockChanges& changes);
    /// What stands behind the byte of the kind.
    std::size_t body_bytes() const { return body_.size(); }
    void append_to(Bytes& out) const;

  private:
    BlockKind kind_ = BlockKind::kRaw;
    Bytes new_block_;
    Bytes body_;
};

/// Appends a kSplit body for `block`, or nothing when it would not be smaller than `block`.
void encode_split(std::span<const std::byte> block, unsigned element_bytes, Bytes& out);

/// About what the steps of a change list take, from a sample of them. Leans low.
double expected_step_bits(const BlockChanges& changes, bool sign_magnitude);

}  // namespace wisp
