// The directory of a compact delta: which tensors changed, and how long each of their blocks is.
//
//   directory := varint log2 block elements, varint tensor count, tensor…
//   tensor    := varint shared name bytes, varint new name bytes, text, varint dtype, varint rank,
//                varint extent…, varint changed elements, varint block bytes…
//
// Stored as a zlib stream. Names ascend strictly; unchanged tensors are absent. doc/format.md
// section 6.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"

namespace wisp {

struct DirectoryTensor {
    TensorInfo info;
    std::uint64_t changed_elements = 0;
    std::vector<std::uint64_t> block_bytes;  // 0: unchanged block
};

struct DeltaDirectory {
    unsigned log2_block_elements = 0;
    std::vector<DirectoryTensor> tensors;
};

struct PackedDirectory {
    Bytes bytes;
    std::uint64_t plain_bytes = 0;
};

Result<PackedDirectory> write_directory(const DeltaDirectory& directory);

/// kCorrupt names the rule; the sum of the block bytes must equal `blocks_bytes`.
Result<DeltaDirectory> parse_directory(std::span<const std::byte> packed, std::uint64_t plain_bytes,
                                       std::uint64_t blocks_bytes);

}  // namespace wisp
