#include "base/parallel.hpp"
#include "base/paths.hpp"
#include "base/try.hpp"
#include "delta/delta_chain.hpp"
#include "delta/delta_writer.hpp"
#include "wisp/control.hpp"
#include "wisp/delta.hpp"

namespace wisp {
namespace {

struct MergedBlock {
    ChainSums sums;
    WrittenBlock written;
};

}  // namespace

Result<DiffReport> merge(const Checkpoint& base, const std::vector<std::filesystem::path>& deltas,
                         const std::filesystem::path& merged, const DiffOptions& options) {
    const StopScope scope(options.stop);
    const Schema& schema = base.schema();
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, schema));
    if (chain.size() == 0) return fail(ErrorKind::kInvalid, "name at least one delta to merge");
    std::vector<std::filesystem::path> inputs = deltas;
    for (const CheckpointFile& file : base.files()) inputs.push_back(file.path);
    WISP_TRY(refuse_overwriting(merged, inputs));
    const unsigned log2 = chain.log2_block_elements();
    WISP_ASSIGN(DeltaWriter writer,
                DeltaWriter::create(merged, options.codec, schema, log2, options.slices));
    const BlockGrid grid(schema, log2);
    const unsigned threads = thread_count(options.threads);
    std::vector<ChainWorker> workers(threads);
    std::vector<WriteWorker> write_workers(threads);
    ChainSums sums;
    std::uint64_t done = 0;
    auto ran = ordered_parallel<MergedBlock>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<MergedBlock> {
            const BlockRange range = grid[index];
            const auto old_block = range.of(base.bytes(range.tensor));
            const TensorSeed& seed = chain.seed(range.tensor);
            ChainWorker& worker = workers[thread];
            MergedBlock block;
            WISP_ASSIGN(const bool touched, chain.run(range, old_block, worker, block.sums));
            const std::span<const std::byte> new_block =
                touched ? DeltaChain::new_block(old_block, worker) : old_block;
            block.written = writer.encode(range, old_block, new_block, seed, write_workers[thread]);
            block.sums.base = block.written.old_state;
            return block;
        },
        [&](std::uint64_t index, MergedBlock block) -> Result<void> {
            sums.add(block.sums);
            const BlockRange range = grid[index];
            done += range.element_count * range.element_bytes;
            if (options.progress) options.progress("merge", done, schema.total_bytes());
            return writer.add(range, std::move(block.written));
        });
    if (!ran) return std::unexpected(chain.explain(std::move(ran).error(), base, threads));
    WISP_TRY(chain.prove(sums.base, sums));
    const std::uint64_t step = options.step.value_or(chain.delta(chain.size() - 1).facts().step);
    return writer.finish(sums.base, step);
}

}  // namespace wisp
