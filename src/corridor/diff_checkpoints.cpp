#include <fmt/format.h>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "codec/block_layout.hpp"
#include "corridor/delta_writer.hpp"
#include "corridor/paths.hpp"
#include "wisp/delta.hpp"

namespace wisp {
namespace {

std::vector<std::filesystem::path> input_files(const Checkpoint& old_state,
                                               const Checkpoint& new_state) {
    std::vector<std::filesystem::path> files;
    for (const CheckpointFile& file : old_state.files()) files.push_back(file.path);
    for (const CheckpointFile& file : new_state.files()) files.push_back(file.path);
    return files;
}

}  // namespace

Result<DiffReport> diff(const Checkpoint& old_state, const Checkpoint& new_state,
                        const std::filesystem::path& delta, const DiffOptions& options) {
    WISP_TRY(require_same_schema(old_state.schema(), shown(old_state.path().string()),
                                 new_state.schema(), shown(new_state.path().string())));
    WISP_TRY(refuse_overwriting(delta, input_files(old_state, new_state)));
    return diff_weights(old_state, new_state, delta, options);
}

Result<DiffReport> diff(const Weights& old_state, const Weights& new_state,
                        const std::filesystem::path& delta, const DiffOptions& options) {
    WISP_TRY(require_same_schema(old_state.schema(), "the old state", new_state.schema(),
                                 "the new state"));
    return diff_weights(old_state, new_state, delta, options);
}

Result<DiffReport> diff_weights(const Weights& old_state, const Weights& new_state,
                                const std::filesystem::path& delta, const DiffOptions& options,
                                KeptChanges* kept) {
    const Schema& schema = old_state.schema();
    const unsigned log2 = kDefaultLog2BlockElements;
    WISP_ASSIGN(DeltaWriter writer, DeltaWriter::create(delta, options.codec, schema, log2));
    writer.keep_in(kept);
    const BlockGrid grid(schema, log2);
    const unsigned threads = thread_count(options.threads);
    std::vector<WriteWorker> workers(threads);
    const std::vector<TensorSeed> seeds = seeds_of(schema);
    std::uint64_t done = 0;

    WISP_TRY(ordered_parallel<WrittenBlock>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
            const BlockRange range = grid[index];
            const auto old_block = range.of(old_state.bytes(range.tensor));
            const auto new_block = range.of(new_state.bytes(range.tensor));
            return writer.encode(range, old_block, new_block, seeds[range.tensor], workers[thread]);
        },
        [&](std::uint64_t index, WrittenBlock block) -> Result<void> {
            const BlockRange range = grid[index];
            WISP_TRY(writer.add(range, std::move(block)));
            done += range.element_count * range.element_bytes;
            if (options.progress) options.progress("diff", done, schema.total_bytes());
            return {};
        }));
    return writer.finish(writer.old_state(), options.step.value_or(0));
}

Result<StateDigest> digest_of(const Weights& weights, unsigned threads, const Progress& progress) {
    const Schema& schema = weights.schema();
    const BlockGrid grid(schema, kDefaultLog2BlockElements);
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

std::string kernel_name() {
    return std::string(active_kernels().name);
}
Result<void> check_kernel() {
    return check_kernel_choice();
}

}  // namespace wisp
