// A list of changes into the coded bytes of a swift block: doc/format.md section 12.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "codec/dense_encoder.hpp"
#include "codec/gap_writer.hpp"
#include "codec/rans.hpp"
#include "codec/swift_steps.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// One per thread: it keeps its buffers between blocks.
class SwiftEncoder {
  public:
    /// Appends nothing when nothing changed. `changes` has positions inside the block, the old bits
    /// there, and new bits that differ. What it costs depends on them alone: `old_block` is read
    /// only where they are so many that the block is stored with every element.
    void encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                const DtypeTraits& traits, Bytes& out);

    /// True: from two states, without a list, since so much changed that every element is stored.
    /// As DenseEncoder::encode_difference().
    bool encode_if_dense(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                         const DtypeTraits& traits, const TensorSeed& seed,
                         const ScanDigest& digest, std::uint64_t first_word, Bytes& out,
                         BlockChanges* keep, EncodedDifference& difference);

    /// Whether encode_if_dense() would; of a block that is cut into tiles.
    static bool is_dense(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                         unsigned element_bytes);
    /// With every element; the blocks differ.
    void encode_dense(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                      const DtypeTraits& traits, Bytes& out);

  private:
    void encode_sparse(std::size_t element_count, const BlockChanges& changes,
                       const DtypeTraits& traits, Bytes& out);
    GapWriter gaps_;
    RansWriter rans_;
    SwiftSteps steps_;
    DenseEncoder dense_;
};

}  // namespace wisp
