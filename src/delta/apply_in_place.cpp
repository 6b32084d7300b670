#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <system_error>

#include "base/file.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/journal_path.hpp"
#include "delta/delta_chain.hpp"
#include "delta/journal.hpp"
#include "wisp/control.hpp"
#include "wisp/delta.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// Held while a checkpoint is overwritten; ends with the process, however it ends.
Result<FileHandle> lock_checkpoint(const fs::path& path) {
    FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (handle.get() < 0) return std::unexpected(file_error("open", path, errno));
    if (::flock(handle.get(), LOCK_EX | LOCK_NB) != 0) {
        return fail(ErrorKind::kConflict,
                    fmt::format("{} is being overwritten by another process; wait for it",
                                shown(path.string())));
    }
    return handle;
}

Result<void> remove_journal(const fs::path& checkpoint) {
    const fs::path path = journal_path(checkpoint);
    std::error_code error;
    fs::remove(path, error);
    if (error) return std::unexpected(file_error("remove", path, error.value()));
    return sync_folder(folder_of(path));
}

/// Writes the journal's new bits and proves them; failing that, goes back to the old ones.
Result<Recovery> finish_or_undo(const fs::path& path, unsigned threads, const Progress& progress) {
    WISP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path, PendingApply::kAllow));
    WISP_ASSIGN(const Journal journal, Journal::open(path, checkpoint.files()));
    auto written = replay(journal, checkpoint.files(), JournalSide::kNew);
    if (written && !journal.prove()) {
        WISP_TRY(remove_journal(path));
        return Recovery::kFinished;
    }
    if (written) {
        WISP_ASSIGN(const StateDigest state, digest_of(checkpoint, threads, progress));
        if (state == journal.result()) {
            WISP_TRY(remove_journal(path));
            return Recovery::kFinished;
        }
    }
    WISP_TRY(replay(journal, checkpoint.files(), JournalSide::kOld));
    std::optional<StateDigest> state;
    if (journal.prove()) {
        WISP_ASSIGN(state, digest_of(checkpoint, threads, progress));
    }
    if (state && *state != journal.base()) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} is neither at the state before nor after its interrupted "
                                "apply: it was changed since, or its disk is failing; restore it "
                                "from its source and remove {}",
                                shown(path.string()), shown(journal_path(path).string())));
    }
    WISP_TRY(remove_journal(path));
    if (!written) return std::unexpected(std::move(written).error());
    return Recovery::kUndone;
}

Result<Recovery> recover_locked(const fs::path& base) {
    std::error_code error;
    const bool swept = sweep_unfinished_journals(base);
    if (!fs::exists(journal_path(base), error)) {
        return swept ? Recovery::kUndone : Recovery::kNone;
    }
    return finish_or_undo(base, 0, {});
}

struct JournalPiece {
    ChainSums sums;
    BlockChanges changes;
};

Result<ApplyReport> apply_locked(const fs::path& base_path, const std::vector<fs::path>& deltas,
                                 const ApplyOptions& options) {
    ApplyReport report;
    WISP_ASSIGN(const Checkpoint base, Checkpoint::open(base_path));
    const Schema& schema = base.schema();
    WISP_ASSIGN(DeltaChain chain, DeltaChain::open(deltas, schema));
    const unsigned threads = thread_count(options.threads);

    std::optional<StateDigest> state;
    if (!options.touched_only) {
        WISP_ASSIGN(state, digest_of(base, threads, options.progress));
        report.deltas_skipped = chain.skip_to(*state);
    }
    // What cannot be written must not get a journal that nobody could replay.
    for (const CheckpointFile& file : base.files()) WISP_TRY(open_for_update_alone(file.path));
    WISP_ASSIGN(JournalWriter journal, JournalWriter::create(base, state.has_value()));
    const BlockGrid grid(schema, chain.log2_block_elements());
    std::vector<ChainWorker> workers(threads);
    ChainSums sums;
    std::uint64_t done = 0;
    auto ran = ordered_parallel<JournalPiece>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<JournalPiece> {
            const BlockRange range = grid[index];
            JournalPiece piece;
            WISP_ASSIGN(const bool touched, chain.run(range, range.of(base.bytes(range.tensor)),
                                                      workers[thread], piece.sums));
            if (touched) piece.changes = std::move(workers[thread].net);
            return piece;
        },
        [&](std::uint64_t index, JournalPiece piece) -> Result<void> {
            sums.add(piece.sums);
            const BlockRange range = grid[index];
            const TensorPlace& place = base.place(range.tensor);
            done += range.element_count * range.element_bytes;
            if (options.progress) options.progress("journal", done, schema.total_bytes());
            return journal.add(place.file, place.offset + range.first_element * range.element_bytes,
                               piece.changes);
        });
    if (!ran) return std::unexpected(chain.explain(std::move(ran).error(), base, threads));

    // Everything is proven here, before the first weight is touched.
    WISP_ASSIGN(const DeltaChain::Proof proof, chain.prove(state, sums));
    chain.tell(proof, sums, report);
    if (sums.changed_elements == 0) return report;
    WISP_TRY(journal.finish(state.value_or(StateDigest{}), report.result));
    WISP_ASSIGN(const Recovery outcome, finish_or_undo(base_path, threads, options.progress));
    if (outcome == Recovery::kUndone) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("{} did not hold what was written to it; its old state was put "
                                "back: check the disk, then try again",
                                shown(base_path.string())));
    }
    return report;
}

}  // namespace

Result<Recovery> recover(const fs::path& base) {
    WISP_ASSIGN(const FileHandle lock, lock_checkpoint(base));
    return recover_locked(base);
}

Result<ApplyReport> apply_in_place(const fs::path& base, const std::vector<fs::path>& deltas,
                                   const ApplyOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const FileHandle lock, lock_checkpoint(base));
    WISP_ASSIGN(const Recovery recovery, recover_locked(base));
    auto report = apply_locked(base, deltas, options);
    if (!report && report.error().kind == ErrorKind::kWrongBase && options.touched_only) {
        // The quick way cannot tell a wrong base from one that has these deltas already.
        ApplyOptions thorough = options;
        thorough.touched_only = false;
        report = apply_locked(base, deltas, thorough);
    }
    if (report) report->recovery = recovery;
    return report;
}

}  // namespace wisp
