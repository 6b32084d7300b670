// One block of changes into its coded bytes, the smallest kind that fits: doc/format.md section 7.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "codec/dense_encoder.hpp"
#include "codec/rans.hpp"
#include "codec/sparse_plan.hpp"
#include "kernel/kernels.hpp"
#include "kernel/touched.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// With fewer elements for each that changed, coding all of them takes far less time than coding
/// where the changes are, and about as many bytes.
inline constexpr std::size_t kSparseElementsPerChange = 24;

/// One per thread: it keeps its buffers between blocks.
class BlockEncoder {
  public:
    /// Appends nothing when nothing changed. `old_block` holds whole elements of the dtype and
    /// `changes` positions inside it, each with bits that differ from the old ones.
    void encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                const DtypeTraits& traits, Bytes& out);

    /// Detection and encode() in one pass over memory. Decodes to the same changes; the bytes may
    /// differ, since the plan is made before all changes are known. `digest` as for a scan. `keep`
    /// is replaced by the positions and new bits.
    EncodedDifference encode_difference(std::span<const std::byte> old_block,
                                        std::span<const std::byte> new_block,
                                        const DtypeTraits& traits, const TensorSeed& seed,
                                        const ScanDigest& digest, std::uint64_t first_word,
                                        Bytes& out, BlockChanges* keep = nullptr);

  private:
    void encode_sparse(std::span<const std::byte> old_block, const BlockChanges& changes,
                       const DtypeTraits& traits, Bytes& out);
    EncodedDifference encode_list(std::span<const std::byte> old_block,
                                  std::span<const std::byte> new_block, const DtypeTraits& traits,
                                  const TensorSeed& seed, const ScanDigest& digest,
                                  std::uint64_t first_word, Bytes& out, BlockChanges* keep);
    SparsePlanner planner_;
    RansWriter rans_;
    DenseEncoder dense_;
    BlockChanges changes_;
};

}  // namespace wisp
