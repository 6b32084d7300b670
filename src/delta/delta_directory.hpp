// The directory of a compact delta: which tensors changed, and how long each of their blocks is.
//
//   directory := varint log2 block elements, varint tensor count, tensor…
//   tensor    := varint shared name bytes, varint new name bytes, text, varint dtype, varint rank,
//                varint extent…, varint changed elements, varint block bytes…
// of a sliced delta:
//   tensor    := … varint changed elements, varint log2 band elements, varint strips,
//                varint tile bytes…, 16 bytes of SHA-256 for each tile that has bytes
//
// Stored as a zlib stream. Names ascend strictly; unchanged tensors are absent. doc/format.md
// section 6.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "checkpoint/tiles.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"

namespace wisp {

/// In front of the block that a tile is: the sums of the words it touches, before and after (`a` of
/// the digest), 8 bytes each.
inline constexpr std::size_t kTileProofBytes = 16;
/// The first half of the SHA-256 of a tile's bytes.
using TileHash = std::array<std::byte, 16>;
TileHash tile_hash(std::span<const std::byte> tile);

struct DirectoryTensor {
    TensorInfo info;
    std::uint64_t changed_elements = 0;
    std::vector<std::uint64_t> block_bytes;  // of blocks, or of tiles; 0: nothing changed in it
    // Of a sliced delta:
    TensorCut cut;
    std::vector<TileHash> hashes;  // one per tile
};

struct DeltaDirectory {
    unsigned log2_block_elements = 0;
    unsigned slices = 0;  // 0: it is not sliced
    std::vector<DirectoryTensor> tensors;
};

struct PackedDirectory {
    Bytes bytes;
    std::uint64_t plain_bytes = 0;
};

Result<PackedDirectory> write_directory(const DeltaDirectory& directory);

/// kCorrupt names the rule; the sum of the block bytes must equal `blocks_bytes`.
Result<DeltaDirectory> parse_directory(std::span<const std::byte> packed, std::uint64_t plain_bytes,
                                       std::uint64_t blocks_bytes, unsigned slices = 0);

/// Where each tile begins, from the first on: by tensors, as their block_bytes.
std::vector<std::vector<std::uint64_t>> tile_offsets(const DeltaDirectory& directory);

}  // namespace wisp
