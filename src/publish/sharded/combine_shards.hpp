// The slips of all ranks put together: is every block there once, and how do they make up a file.
#pragma once

#include <cstdint>
#include <vector>

#include "delta/delta_layout.hpp"
#include "publish/sharded/shard_manifest.hpp"

namespace wisp {

struct GatheredSlips {
    std::vector<ShardSlip> slips;  // by rank
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

/// One slip per rank, in order. kInvalid names the rank whose slip breaks a rule, or the tensor
/// that has a block which no rank holds, or more than one.
Result<GatheredSlips> gather_slips(const std::vector<Bytes>& slips, const Schema& schema,
                                   const ShardCall& call);

/// What the committing rank has to upload so that the ranks' parts, behind it, are the file.
struct WovenHead {
    Bytes object;                   // the weave, what no rank has, and the short payloads
    std::vector<StoredPart> parts;  // of the ranks, in the order of the weave
};

/// As CompactSealer would have written it. Fills in the counts of `facts`.
Result<WovenHead> weave_delta(const GatheredSlips& gathered, const Schema& schema,
                              DeltaFacts& facts);
/// As write_weights() would have written it.
WovenHead weave_whole(const GatheredSlips& gathered, const Schema& schema,
                      const Metadata& metadata);

}  // namespace wisp
