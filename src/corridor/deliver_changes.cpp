#include "corridor/deliver_changes.hpp"

#include "apply/patch.hpp"
#include "base/parallel.hpp"
#include "base/try.hpp"
#include "corridor/delta_chain.hpp"

namespace wisp {

namespace {

Result<ApplyReport> prove(const DeltaChain& chain, const Weights& base, const StateDigest& known,
                          std::vector<ChainWorker>& workers) {
    const auto threads = static_cast<unsigned>(workers.size());
    const BlockGrid grid(base.schema(), chain.log2_block_elements());
    ChainSums sums;
    auto proven = ordered_parallel<ChainSums>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<ChainSums> {
            const BlockRange range = grid[index];
            ChainSums block;
            WISP_TRY(chain.run(range, range.of(base.bytes(range.tensor)), workers[thread], block));
            return block;
        },
        [&](std::uint64_t, ChainSums block) -> Result<void> {
            sums.add(block);
            return {};
        });
    if (!proven) return std::unexpected(chain.explain(std::move(proven).error(), base, threads));
    WISP_ASSIGN(const DeltaChain::Settled settled, chain.settle(known, sums));
    ApplyReport report;
    report.deltas_applied = chain.size();
    report.changed_elements = sums.changed_elements;
    report.base_proven = settled.base_proven;
    report.result_proven = settled.result_proven;
    if (settled.result) report.result = *settled.result;
    return report;
}

}  // namespace

Result<ApplyReport> prove_changes(const Weights& base, const StateDigest& known,
                                  const std::vector<std::filesystem::path>& deltas,
                                  unsigned threads) {
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, base.schema()));
    std::vector<ChainWorker> workers(thread_count(threads));
    return prove(chain, base, known, workers);
}

Result<ApplyReport> deliver_changes(const Weights& base, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned asked_threads, const TakeChanges& take) {
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, base.schema()));
    const unsigned threads = thread_count(asked_threads);
    std::vector<ChainWorker> workers(threads);
    WISP_ASSIGN(const ApplyReport report, prove(chain, base, known, workers));
    if (report.changed_elements == 0) return report;
    const BlockGrid grid(base.schema(), chain.log2_block_elements());
    WISP_TRY(ordered_parallel<BlockChanges>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<BlockChanges> {
            const BlockRange range = grid[index];
            ChainSums unused;
            WISP_ASSIGN(const bool touched, chain.run(range, range.of(base.bytes(range.tensor)),
                                                      workers[thread], unused));
            return touched ? std::move(workers[thread].net.changes) : BlockChanges{};
        },
        [&](std::uint64_t index, BlockChanges changes) -> Result<void> {
            if (changes.empty()) return {};
            return take(grid[index], changes);
        }));
    return report;
}

Result<ApplyReport> patch_unguarded(const Checkpoint& checkpoint, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned threads) {
    std::vector<FileHandle> handles;
    for (const CheckpointFile& file : checkpoint.files()) {
        WISP_ASSIGN(FileHandle handle, open_for_update(file.path));
        handles.push_back(std::move(handle));
    }
    Bytes buffer;
    return deliver_changes(
        checkpoint, known, deltas, threads,
        [&](const BlockRange& range, const BlockChanges& changes) -> Result<void> {
            const TensorPlace& place = checkpoint.place(range.tensor);
            return patch_file(
                handles[place.file], checkpoint.files()[place.file].path,
                {place.offset + range.first_element * range.element_bytes, range.element_bytes,
                 std::as_bytes(std::span(changes.positions)), changes.new_bits},
                buffer);
        });
}

}  // namespace wisp
