// Blocks that hold every element, back into the new block. Only steps need the old one.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/bytes.hpp"
#include "codec/block_layout.hpp"
#include "codec/token_stream.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

constexpr bool is_dense(BlockKind kind) {
    return kind == BlockKind::kRaw || kind == BlockKind::kSplit || kind == BlockKind::kSteps;
}

/// kCorrupt where so few bytes, or of raw ones another number, cannot hold that many elements: for
/// those who make room by that number before they decode.
Result<void> check_dense_length(std::span<const std::byte> coded, std::size_t element_count,
                                unsigned element_bytes);

/// One per thread: it keeps its buffers between blocks.
class DenseDecoder {
  public:
    /// `coded` begins with the byte of its kind, a dense one. The new block is as long as the old.
    Result<void> decode(std::span<const std::byte> coded, std::span<const std::byte> old_block,
                        const DtypeTraits& traits, std::byte* new_block);
    /// The same as changes, which are replaced; their width is set.
    Result<void> decode(std::span<const std::byte> coded, std::span<const std::byte> old_block,
                        const DtypeTraits& traits, BlockChanges& changes);

  private:
    /// Is given each part of the new block while it is in the nearest cache.
    using TakePart =
        std::function<void(std::size_t first_byte, std::span<const std::byte> new_part)>;
    /// Writes the parts to `new_block`, unless that is null: then they are gone after `take`.
    Result<void> decode_parts(std::span<const std::byte> coded,
                              std::span<const std::byte> old_block, const DtypeTraits& traits,
                              std::byte* new_block, const TakePart& take);
    Result<void> decode_split(ByteReader& in, std::size_t block_bytes, unsigned element_bytes,
                              std::byte* new_block, const TakePart& take);
    Result<void> decode_steps(ByteReader& in, std::span<const std::byte> old_block,
                              const DtypeTraits& traits, std::byte* new_block,
                              const TakePart& take);
    TokenReader reader_;
};

/// Fills `changes`, of the right width, with what differs.
void compare_blocks(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                    BlockChanges& changes);

std::unexpected<Error> unknown_kind();

}  // namespace wisp
