// One block of changes into its coded bytes, the smallest kind that fits: doc/format.md section 7.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "codec/rans.hpp"
#include "encode/sparse_plan.hpp"
#include "wisp/change_set.hpp"
#include "wisp/dtype.hpp"

namespace wisp {

/// One per thread: it keeps its buffers between blocks.
class BlockEncoder {
  public:
    /// Appends nothing when nothing changed. `old_block` holds whole elements of the dtype and
    /// `changes` positions inside it, each with bits that differ from the old ones. `exponents`
    /// of the old block spare a second pass over it, where detection left them.
    void encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                const DtypeTraits& traits, std::span<const std::uint8_t> exponents, Bytes& out);

  private:
    void encode_sparse(std::span<const std::byte> old_block, const BlockChanges& changes,
                       const DtypeTraits& traits, std::span<const std::uint8_t> exponents,
                       Bytes& out);
    SparsePlanner planner_;
    RansWriter rans_;
    Bytes new_block_;
    Bytes dense_;
};

/// Appends a kSplit body for `block`, or nothing when it would not be smaller than `block`.
void encode_split(std::span<const std::byte> block, unsigned element_bytes, Bytes& out);

}  // namespace wisp
