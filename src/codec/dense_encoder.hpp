// A block with every element in it, changed or not: as steps from the old ones, split, or raw.
//
// Which of them follows from a sample of the elements, and so do the frequencies; what the sample
// missed is still written, at the price of what is rare.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "codec/block_layout.hpp"
#include "codec/token_stream.hpp"
#include "kernel/kernels.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// What there is to know of a block that went from two states to coded bytes without a list.
struct EncodedDifference {
    std::uint64_t changed_elements = 0;
    TouchedSums touched;
};

/// Of a block with fewer elements the tables would be the larger part.
inline constexpr std::size_t kShortBlock = 4096;

/// The share of changed elements, from a small sample.
double changed_share(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                     unsigned element_bytes);

/// One per thread: it keeps its buffers between blocks.
class DenseEncoder {
  public:
    /// Looks at a sample, and says about how many bytes encode() will write.
    double plan(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                const DtypeTraits& traits);
    /// Appends the blocks just planned for.
    void encode(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                const DtypeTraits& traits, Bytes& out);
    /// Detection, plan and encode(). `digest` as for a scan; `keep` is replaced by the changes.
    EncodedDifference encode_difference(std::span<const std::byte> old_block,
                                        std::span<const std::byte> new_block,
                                        const DtypeTraits& traits, const TensorSeed& seed,
                                        const ScanDigest& digest, std::uint64_t first_word,
                                        Bytes& out, BlockChanges* keep = nullptr);
    /// The new block that a list of changes leads to, until the next call.
    std::span<const std::byte> new_block(std::span<const std::byte> old_block,
                                         const BlockChanges& changes);

  private:
    using Counts = std::array<std::uint32_t, 256>;
    /// For so many tokens and classes. Never less: filling what is written anyway would take time.
    void make_room(std::size_t count);
    void count_steps(std::span<const std::byte> old_part, std::span<const std::byte> new_part,
                     const DtypeTraits& traits);
    void append_steps(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                      const DtypeTraits& traits, Bytes& out);
    void append_split(std::span<const std::byte> new_block, unsigned element_bytes, Bytes& out);

    BlockKind kind_ = BlockKind::kRaw;
    ClassWindow window_;
    std::array<Counts, kMaxTokenClasses> step_counts_;  // of the sample, by class
    Counts byte_counts_;                                // of the sample's highest bytes
    double bits_behind_ = 0;                            // of the sample's tokens
    std::vector<std::uint8_t> tokens_;                  // as many as there is room for
    std::vector<std::uint8_t> classes_;
    Bytes steps_;
    Bytes behind_;  // the bits behind the tokens
    Bytes old_sample_;
    Bytes new_sample_;
    Bytes new_block_;
    TokenWriter writer_;
};

/// About what the steps of a change list take, from a sample of them. Leans low.
double expected_step_bits(const BlockChanges& changes, bool sign_magnitude);

}  // namespace wisp
