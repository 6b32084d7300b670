// The digest of a whole state: doc/format.md section 3.
#include "base/parallel.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "kernel/kernels.hpp"
#include "wisp/checkpoint.hpp"

namespace wisp {

Result<StateDigest> digest_of(const Weights& weights, unsigned threads, const Progress& progress) {
    const Schema& schema = weights.schema();
    const BlockGrid grid(schema, kLog2BlockElements);
    const std::vector<TensorSeed> seeds = seeds_of(schema);
    StateDigest digest;
    std::uint64_t done = 0;
    WISP_TRY(ordered_parallel<StateDigest>(
        grid.count(), thread_count(threads),
        [&](std::uint64_t index, unsigned) -> Result<StateDigest> {
            const BlockRange range = grid[index];
            const auto block = range.of(weights.bytes(range.tensor));
            return active_kernels().mix_bytes(block.data(), block.size(), seeds[range.tensor],
                                              range.first_word());
        },
        [&](std::uint64_t index, StateDigest part) -> Result<void> {
            digest += part;
            const BlockRange range = grid[index];
            done += range.element_count * range.element_bytes;
            if (progress) progress("digest", done, schema.total_bytes());
            return {};
        }));
    return digest;
}

}  // namespace wisp
