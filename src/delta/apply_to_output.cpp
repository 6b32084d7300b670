#include <fmt/format.h>

#include <system_error>

#include "base/file.hpp"
#include "base/parallel.hpp"
#include "base/paths.hpp"
#include "base/pending_folder.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/delta_chain.hpp"
#include "kernel/kernels.hpp"
#include "wisp/control.hpp"
#include "wisp/delta.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// config.json, tokenizer and the like: whatever a loader wants beside the weights.
Result<void> copy_other_files(const Checkpoint& base, const fs::path& to) {
    std::error_code error;
    for (const auto& item : fs::directory_iterator(base.path(), error)) {
        const std::string name = item.path().filename().string();
        if (name.starts_with(".") || name.ends_with(".safetensors")) continue;
        WISP_TRY(copy_tree(item.path(), to / name));
    }
    if (error) return std::unexpected(file_error("list", base.path(), error.value()));
    return {};
}

struct OutputFiles {
    std::vector<PendingFile> files;

    static Result<OutputFiles> create(const Checkpoint& base, const fs::path& output) {
        OutputFiles outputs;
        for (std::size_t i = 0; i < base.files().size(); ++i) {
            const CheckpointFile& file = base.files()[i];
            const fs::path path = base.is_folder() ? output / file.path.filename() : output;
            WISP_ASSIGN(PendingFile pending, PendingFile::create(path));
            WISP_TRY(pending.reserve(file.size_bytes));
            WISP_TRY(pending.append(base.header_bytes(i)));
            outputs.files.push_back(std::move(pending));
        }
        return outputs;
    }
};

struct BlockOutcome {
    ChainSums sums;
    StateDigest written;  // of what went into the file
};

}  // namespace

Result<ApplyReport> apply(const fs::path& base_path, const std::vector<fs::path>& deltas,
                          const fs::path& output, const ApplyOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const Checkpoint base, Checkpoint::open(base_path));
    const Schema& schema = base.schema();
    std::error_code error;
    if (!base.is_folder() && fs::is_directory(output, error)) {
        return std::unexpected(file_error("write", output, EISDIR));
    }
    if (fs::equivalent(base_path, output, error)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is the base itself; use --in-place to overwrite it",
                                shown(output.string())));
    }
    WISP_TRY(refuse_overwriting(output, deltas));
    WISP_ASSIGN(DeltaChain chain, DeltaChain::open(deltas, schema));
    const unsigned threads = thread_count(options.threads);
    ApplyReport report;
    // A base that is already past the first deltas is worth a pass of its own to find out.
    if (chain.size() > 0 && chain.delta(0).sealed() && !options.touched_only) {
        WISP_ASSIGN(const StateDigest state, digest_of(base, threads, options.progress));
        report.deltas_skipped = chain.skip_to(state);
    }

    std::optional<PendingFolder> folder;
    if (base.is_folder()) {
        WISP_ASSIGN(PendingFolder pending, PendingFolder::create(output));
        folder.emplace(std::move(pending));
        WISP_TRY(copy_other_files(base, folder->path()));
    }
    WISP_ASSIGN(OutputFiles outputs,
                OutputFiles::create(base, base.is_folder() ? folder->path() : output));

    const BlockGrid grid(schema, chain.log2_block_elements());
    std::vector<ChainWorker> workers(threads);
    ChainSums sums;
    StateDigest written;
    std::uint64_t done = 0;
    auto ran = ordered_parallel<BlockOutcome>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<BlockOutcome> {
            const BlockRange range = grid[index];
            const auto old_block = range.of(base.bytes(range.tensor));
            const TensorSeed& seed = chain.seed(range.tensor);
            BlockOutcome outcome;
            WISP_ASSIGN(const bool touched,
                        chain.run(range, old_block, workers[thread], outcome.sums));
            const auto mix = active_kernels().mix_bytes;
            outcome.sums.base = mix(old_block.data(), old_block.size(), seed, range.first_word());
            outcome.written = outcome.sums.base;
            std::span<const std::byte> block = old_block;
            if (touched) {
                block = DeltaChain::new_block(old_block, workers[thread]);
                outcome.written = mix(block.data(), block.size(), seed, range.first_word());
            }
            const TensorPlace& place = base.place(range.tensor);
            const PendingFile& file = outputs.files[place.file];
            WISP_TRY(write_at(file.handle(),
                              place.offset + range.first_element * range.element_bytes, block,
                              file.path()));
            return outcome;
        },
        [&](std::uint64_t index, BlockOutcome outcome) -> Result<void> {
            sums.add(outcome.sums);
            written += outcome.written;
            const BlockRange range = grid[index];
            done += range.element_count * range.element_bytes;
            if (options.progress) options.progress("apply", done, schema.total_bytes());
            return {};
        });
    if (!ran) return std::unexpected(chain.explain(std::move(ran).error(), base, threads));

    WISP_ASSIGN(const DeltaChain::Proof proof, chain.prove(sums.base, sums));
    if (proof.result && written != *proof.result) {
        return fail(ErrorKind::kInternal,
                    "what was written is not what was proven; please report this as a bug");
    }
    for (PendingFile& file : outputs.files) WISP_TRY(file.commit());
    if (folder) WISP_TRY(folder->commit());
    chain.tell(proof, sums, report);
    report.result = written;
    return report;
}

}  // namespace wisp
