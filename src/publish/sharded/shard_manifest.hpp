// What a rank tells rank 0 of the blocks it coded and uploaded: wisp/shard.hpp.
//
//   shard manifest  := "wisp shard manifest 1" varint rank, call, 32 digits of the schema, varint
//   log2, varint spans, span…,
//            block…, u64 × 6 sums, varint parts, part…, varint payload bytes, payload
//   call  := u8 part, varint step, varint epoch, u64 × 2 base, u8 codec (0 compact, 3 swift)
//   span  := varint tensor, varint first block, varint blocks
//   block := varint bytes, varint changed elements
//   part  := varint key bytes, key, varint bytes, 32 bytes of SHA-256
//
// It lives for one step, between processes of one trainer; still a peer's bytes are not believed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "log/commit.hpp"
#include "wisp/shard.hpp"

namespace wisp {

struct ManifestBlock {
    std::uint64_t bytes = 0;    // coded
    std::uint64_t changed = 0;  // elements
};

struct ShardManifest {
    std::uint64_t rank = 0;
    ShardCall call;
    std::string schema;  // digest
    unsigned log2_block_elements = 0;
    std::vector<BlockSpan> spans;       // ascending
    std::vector<ManifestBlock> blocks;  // of a delta: all blocks of the spans, in order
    StateDigest state;                  // over its blocks: before a delta, or of what is sent whole
    StateDigest touched_before;
    StateDigest touched_after;
    std::vector<StoredPart> parts;
    Bytes payload;  // instead of parts, when it is short

    /// What the parts, or the payload, hold together.
    std::uint64_t uploaded_bytes() const;
};

/// Whether `spans` ascend, do not overlap, and are blocks of the schema; how many blocks they have.
Result<std::uint64_t> count_blocks(const std::vector<BlockSpan>& spans, const Schema& schema,
                                   unsigned log2_block_elements);
/// Their bytes as they are in the weights. `spans` were counted.
std::uint64_t plain_bytes(const std::vector<BlockSpan>& spans, const Schema& schema,
                          unsigned log2_block_elements);

Bytes write_shard_manifest(const ShardManifest& manifest);

/// Holds the shard manifest against the schema and the call that it must answer: spans of real
/// blocks, plausible counts, keys as they must be named, as many bytes as its blocks have.
/// kInvalid.
Result<ShardManifest> parse_shard_manifest(std::span<const std::byte> bytes, const Schema& schema,
                                           const ShardCall& call);

}  // namespace wisp
