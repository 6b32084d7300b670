// A delta made from a state that has moved on meanwhile, put onto the newer one.
#include "base/parallel.hpp"
#include "base/try.hpp"
#include "corridor/delta_chain.hpp"
#include "corridor/delta_writer.hpp"

namespace wisp {
namespace {

struct RebasedBlock {
    ChainSums first;
    ChainSums second;
    WrittenBlock written;
};

}  // namespace

Result<DiffReport> rebase_delta(const Weights& base, const StateDigest& known,
                                const std::filesystem::path& first_delta,
                                const std::filesystem::path& second_delta,
                                const std::filesystem::path& output, const DiffOptions& options,
                                KeptChanges* kept) {
    const Schema& schema = base.schema();
    WISP_ASSIGN(const DeltaChain first, DeltaChain::open({first_delta}, schema));
    WISP_ASSIGN(const DeltaChain second, DeltaChain::open({second_delta}, schema));
    const unsigned log2 = std::max(first.log2_block_elements(), second.log2_block_elements());
    WISP_ASSIGN(DeltaWriter writer, DeltaWriter::create(output, options.codec, schema, log2));
    writer.keep_in(kept);
    const BlockGrid grid(schema, log2);
    const unsigned threads = thread_count(options.threads);
    std::vector<ChainWorker> first_workers(threads);
    std::vector<ChainWorker> second_workers(threads);
    std::vector<WriteWorker> write_workers(threads);
    ChainSums first_sums;
    ChainSums second_sums;
    WISP_TRY(ordered_parallel<RebasedBlock>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<RebasedBlock> {
            const BlockRange range = grid[index];
            const auto old_block = range.of(base.bytes(range.tensor));
            RebasedBlock block;
            WISP_ASSIGN(const bool in_first,
                        first.run(range, old_block, first_workers[thread], block.first));
            WISP_ASSIGN(const bool in_second,
                        second.run(range, old_block, second_workers[thread], block.second));
            block.written.encoded.tensor = range.tensor;
            if (!in_first && !in_second) return block;
            const std::span<const std::byte> before =
                in_first ? std::span<const std::byte>(first_workers[thread].block) : old_block;
            const std::span<const std::byte> after =
                in_second ? std::span<const std::byte>(second_workers[thread].block) : old_block;
            block.written = writer.encode(range, before, after, first.seed(range.tensor),
                                          write_workers[thread]);
            return block;
        },
        [&](std::uint64_t index, RebasedBlock block) -> Result<void> {
            first_sums.add(block.first);
            second_sums.add(block.second);
            return writer.add(grid[index], std::move(block.written));
        }));
    WISP_ASSIGN(const DeltaChain::Settled settled, first.settle(known, first_sums));
    WISP_TRY(second.settle(known, second_sums));
    return writer.finish(settled.result.value_or(known), options.step.value_or(0));
}

}  // namespace wisp
