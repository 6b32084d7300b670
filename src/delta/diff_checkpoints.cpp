#include <fmt/format.h>

#include "base/parallel.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/block_feed.hpp"
#include "checkpoint/blocks.hpp"
#include "delta/delta_writer.hpp"
#include "delta/diff_weights.hpp"
#include "wisp/control.hpp"
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
                                const std::filesystem::path& delta, const DiffOptions& options) {
    WholeStream stream(new_state);
    return diff_stream(old_state, stream, delta, options);
}

Result<DiffReport> diff_stream(const Weights& old_state, WeightStream& new_state,
                               const std::filesystem::path& delta, const DiffOptions& options,
                               Keep keep, ChangeBuffer* kept) {
    const StopScope scope(options.stop);
    const Schema& schema = old_state.schema();
    WISP_ASSIGN(DeltaWriter writer, DeltaWriter::create(delta, options.codec, schema,
                                                        kLog2BlockElements, options.slices));
    writer.keep_in(kept);
    const unsigned threads = thread_count(options.threads);
    std::vector<WriteWorker> workers(threads);
    const std::vector<TensorSeed> seeds = seeds_of(schema);
    BlockFeed feed(new_state, schema);
    WISP_TRY(read_blocks<WrittenBlock>(
        feed, threads, {"diff", &options.progress},
        [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
            const BlockRange range = feed.range(index);
            const auto old_block = range.of(old_state.bytes(range.tensor));
            const auto new_block = feed.block(index, workers[thread].rounded);
            return writer.encode(range, old_block, new_block, seeds[range.tensor], workers[thread]);
        },
        [&](std::uint64_t index, WrittenBlock block) {
            return writer.add(feed.range(index), std::move(block));
        }));
    return writer.finish(writer.old_state(), options.step.value_or(0), keep);
}

std::string kernel_name() {
    return std::string(active_kernels().name);
}
Result<void> check_kernel() {
    return check_kernel_choice();
}

}  // namespace wisp
