// The shard manifests of all ranks put together: is every block there once, and how do they make up
// a file.
#pragma once

#include <cstdint>
#include <vector>

#include "delta/delta_layout.hpp"
#include "publish/sharded/shard_manifest.hpp"

namespace wisp {

struct CombinedShards {
    std::vector<ShardManifest> manifests;  // by rank
    unsigned log2_block_elements = 0;
    /// Which rank holds each block of the grid, and the how-manieth of its blocks that is.
    struct Owner {
        std::uint32_t rank = 0;
        std::uint32_t place = 0;
    };
    std::vector<Owner> owners;
    StateDigest state;  // sums over all ranks
    StateDigest touched_before;
    StateDigest touched_after;
    std::uint64_t part_bytes = 0;  // uploaded by the ranks
};

/// One shard manifest per rank, in order. kInvalid names the rank whose shard manifest breaks a
/// rule, or the tensor that has a block which no rank holds, or more than one.
Result<CombinedShards> combine_shards(const std::vector<Bytes>& manifests, const Schema& schema,
                                      const ShardCall& call);

/// What the committing rank has to upload so that the ranks' parts, behind it, are the file.
struct InterleavedHead {
    Bytes object;                   // the table, what no rank has, and the short payloads
    std::vector<StoredPart> parts;  // of the ranks, in the order of the table
};

/// As CompactSealer would have written it. Fills in the counts of `facts`.
Result<InterleavedHead> interleave_delta(const CombinedShards& gathered, const Schema& schema,
                                         DeltaFacts& facts);
/// As write_weights() would have written it.
InterleavedHead interleave_whole(const CombinedShards& gathered, const Schema& schema,
                                 const Metadata& metadata);

}  // namespace wisp
