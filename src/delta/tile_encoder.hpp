// One block of changes into the tiles of a sliced delta, each with its proof: doc/format.md
// section 6.
//
//   tile := u64 sum of the touched words before, u64 the same after, block
//
// As encode_block() and encode_changes() of delta_writer.hpp, for the codec swift.
#pragma once

#include "checkpoint/tiles.hpp"
#include "delta/delta_writer.hpp"

namespace wisp {

WrittenBlock encode_tiles(const TensorInfo& tensor, const TensorCut& cut, const BlockRange& range,
                          std::span<const std::byte> old_block,
                          std::span<const std::byte> new_block, const TensorSeed& seed,
                          WriteWorker& worker, bool keep_changes);

WrittenBlock encode_tiled_changes(const TensorInfo& tensor, const TensorCut& cut,
                                  const BlockRange& range, std::span<const std::byte> old_block,
                                  const BlockChanges& changes, const TensorSeed& seed,
                                  WriteWorker& worker, bool keep_changes);

}  // namespace wisp
