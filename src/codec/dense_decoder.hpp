// Blocks that hold every element, raw or split, back into the new block; no base is needed.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "wisp/result.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// The new block. `coded` begins with the byte of its kind, which is one of the two; `room` is used
/// where the elements do not stand there as they are.
Result<std::span<const std::byte>> decode_dense(std::span<const std::byte> coded,
                                                std::size_t block_bytes, unsigned element_bytes,
                                                Bytes& room);
Result<void> decode_split(ByteReader& body, std::size_t block_bytes, unsigned element_bytes,
                          Bytes& new_block);

/// Fills `changes`, of the right width, with what differs.
void compare_blocks(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                    BlockChanges& changes);

std::unexpected<Error> unknown_kind();

}  // namespace wisp
