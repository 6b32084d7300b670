#include "delta/deliver_changes.hpp"

#include <fmt/format.h>

#include <limits>

#include "base/parallel.hpp"
#include "base/try.hpp"
#include "delta/change_buffer.hpp"
#include "delta/patch.hpp"

namespace wisp {

namespace {

/// `staged`: the same weights as `base`, or none.
Result<ApplyReport> prove(const DeltaChain& chain, const Weights& base, const StateDigest& known,
                          std::vector<ChainWorker>& workers, ChangeBuffer* kept,
                          const StagedWeights* staged = nullptr) {
    struct ProvenBlock {
        ChainSums sums;
        BlockChanges changes;
    };
    const auto threads = static_cast<unsigned>(workers.size());
    const BlockGrid grid(base.schema(), chain.log2_block_elements());
    ChainSums sums;
    auto proven = ordered_parallel<ProvenBlock>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<ProvenBlock> {
            const BlockRange range = grid[index];
            ProvenBlock block;
            OverlaidBlock old_block = range.of(base.bytes(range.tensor));
            if (staged != nullptr && chain.touches(range)) {
                BlockChanges& over = workers[thread].staged;
                staged->staged(range.tensor, range.first_element, range.element_count, over);
                if (!over.empty()) old_block.over = &over;
            }
            WISP_ASSIGN(const bool touched,
                        chain.run(range, old_block, workers[thread], block.sums));
            if (touched && kept != nullptr) {
                block.changes = std::move(workers[thread].net);
            }
            return block;
        },
        [&](std::uint64_t index, ProvenBlock block) -> Result<void> {
            sums.add(block.sums);
            const BlockRange range = grid[index];
            if (kept != nullptr) {
                kept->keep(range.tensor, range.first_element, std::move(block.changes));
            }
            return {};
        });
    if (!proven && staged != nullptr) {
        // The seal holds, so it is the old bits that make no sense.
        Error error = std::move(proven).error();
        if (error.kind == ErrorKind::kCorrupt) error.kind = ErrorKind::kWrongBase;
        return std::unexpected(std::move(error));
    }
    if (!proven) return std::unexpected(chain.explain(std::move(proven).error(), base, threads));
    WISP_ASSIGN(const DeltaChain::Proof proof, chain.prove(known, sums));
    ApplyReport report;
    chain.tell(proof, sums, report);
    return report;
}

}  // namespace

Result<ApplyReport> prove_changes(const Weights& base, const StateDigest& known,
                                  const std::vector<std::filesystem::path>& deltas,
                                  unsigned threads) {
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, base.schema()));
    std::vector<ChainWorker> workers(thread_count(threads));
    return prove(chain, base, known, workers, nullptr);
}

Result<ApplyReport> deliver_changes(const Weights& base, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned asked_threads, const ChangeTakers& take,
                                    const std::optional<StateDigest>& wanted,
                                    std::uint64_t keep_bytes) {
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, base.schema()));
    const unsigned threads = thread_count(asked_threads);
    std::vector<ChainWorker> workers(threads);
    ChangeBuffer kept(keep_bytes);
    WISP_ASSIGN(const ApplyReport report, prove(chain, base, known, workers, &kept));
    if (wanted && report.result != *wanted) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("the deltas lead to state {}, but their commit says {}: nothing "
                                "was changed; run 'wisp scrub'",
                                to_text(report.result), to_text(*wanted)));
    }
    if (kept.complete()) {
        if (take.all) {
            WISP_TRY(take.all(kept.release()));
            return report;
        }
        for (MovedBlock& block : kept.release()) WISP_TRY(take.one(std::move(block)));
        return report;
    }
    const BlockGrid grid(base.schema(), chain.log2_block_elements());
    WISP_TRY(ordered_parallel<BlockChanges>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<BlockChanges> {
            const BlockRange range = grid[index];
            ChainSums unused;
            WISP_ASSIGN(const bool touched, chain.run(range, range.of(base.bytes(range.tensor)),
                                                      workers[thread], unused));
            return touched ? std::move(workers[thread].net) : BlockChanges{};
        },
        [&](std::uint64_t index, BlockChanges changes) -> Result<void> {
            if (changes.empty()) return {};
            const BlockRange range = grid[index];
            return take.one({range.tensor, range.first_element, std::move(changes)});
        }));
    return report;
}

Result<std::vector<MovedBlock>> staged_changes(const StagedWeights& base, const DeltaChain& chain,
                                               const StateDigest& known, unsigned threads) {
    std::vector<ChainWorker> workers(thread_count(threads));
    ChangeBuffer kept(std::numeric_limits<std::uint64_t>::max());
    WISP_TRY(prove(chain, base, known, workers, &kept, &base));
    return kept.release();
}

namespace {

/// Writes changes into the files of a checkpoint.
class FilePatcher {
  public:
    static Result<FilePatcher> open(const Checkpoint& checkpoint) {
        FilePatcher patcher(checkpoint);
        for (const CheckpointFile& file : checkpoint.files()) {
            WISP_ASSIGN(FileHandle handle, open_for_update(file.path));
            patcher.handles_.push_back(std::move(handle));
        }
        return patcher;
    }
    Result<void> take(const MovedBlock& block) {
        const TensorPlace& place = checkpoint_->place(block.tensor);
        const BlockChanges& changes = block.changes;
        return patch_file(
            handles_[place.file], checkpoint_->files()[place.file].path,
            {place.offset + block.first_element * changes.element_bytes, changes.element_bytes,
             std::as_bytes(std::span(changes.positions)), changes.new_bits},
            buffer_);
    }

  private:
    explicit FilePatcher(const Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}
    const Checkpoint* checkpoint_;
    std::vector<FileHandle> handles_;
    Bytes buffer_;
};

}  // namespace

Result<ApplyReport> patch_unguarded(const Checkpoint& checkpoint, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned threads, const std::optional<StateDigest>& wanted) {
    WISP_ASSIGN(FilePatcher patcher, FilePatcher::open(checkpoint));
    return deliver_changes(checkpoint, known, deltas, threads,
                           {[&](const MovedBlock& block) { return patcher.take(block); }}, wanted);
}

Result<void> patch_unguarded(const Checkpoint& checkpoint, std::span<const MovedBlock> changes) {
    WISP_ASSIGN(FilePatcher patcher, FilePatcher::open(checkpoint));
    for (const MovedBlock& block : changes) WISP_TRY(patcher.take(block));
    return {};
}

}  // namespace wisp
