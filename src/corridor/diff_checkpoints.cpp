#include <fmt/format.h>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "codec/block_layout.hpp"
#include "corridor/delta_writer.hpp"
#include "wisp/delta.hpp"

namespace wisp {
namespace {

struct Worker {
    Detector detector;
    DetectedBlock found;
    BlockEncoder encoder;
};

WrittenBlock encode_in_one_pass(const BlockRange& range, Dtype dtype,
                                std::span<const std::byte> old_block,
                                std::span<const std::byte> new_block, const TensorSeed& seed,
                                BlockEncoder& encoder) {
    WrittenBlock written;
    const ScanDigest digest{&seed, range.first_word(), &written.old_state};
    const EncodedDifference difference =
        encoder.encode_difference(old_block, new_block, traits_of(dtype), seed, digest,
                                  range.first_word(), written.encoded.coded);
    written.encoded.tensor = range.tensor;
    written.encoded.changed_elements = difference.changed_elements;
    written.touched = difference.touched;
    return written;
}

}  // namespace

Result<DiffReport> diff(const Checkpoint& old_state, const Checkpoint& new_state,
                        const std::filesystem::path& delta, const DiffOptions& options) {
    const Schema& schema = old_state.schema();
    WISP_TRY(require_same_schema(schema, shown(old_state.path().string()), new_state.schema(),
                                 shown(new_state.path().string())));
    const unsigned log2 = kDefaultLog2BlockElements;
    WISP_ASSIGN(DeltaWriter writer, DeltaWriter::create(delta, options.codec, schema, log2));
    const BlockGrid grid(schema, log2);
    const unsigned threads = thread_count(options.threads);
    std::vector<Worker> workers(threads);
    std::vector<TensorSeed> seeds;
    for (const TensorInfo& tensor : schema.tensors()) seeds.push_back(seed_of(tensor));
    std::uint64_t done = 0;

    WISP_TRY(ordered_parallel<WrittenBlock>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
            const BlockRange range = grid[index];
            Worker& worker = workers[thread];
            const auto old_block = range.of(old_state.bytes(range.tensor));
            const auto new_block = range.of(new_state.bytes(range.tensor));
            if (options.codec == Codec::kCompact) {
                return encode_in_one_pass(range, schema.tensors()[range.tensor].dtype, old_block,
                                          new_block, seeds[range.tensor], worker.encoder);
            }
            worker.detector.detect(old_block, new_block, range, seeds[range.tensor], true,
                                   worker.found);
            return writer.encode(range, old_block, worker.found, worker.encoder);
        },
        [&](std::uint64_t index, WrittenBlock block) -> Result<void> {
            const BlockRange range = grid[index];
            WISP_TRY(writer.add(range, std::move(block)));
            done += range.element_count * range.element_bytes;
            if (options.progress) options.progress("diff", done, schema.total_bytes());
            return {};
        }));
    return writer.finish(writer.old_state(), step_after(old_state.metadata(), options.step));
}

Result<StateDigest> digest_of(const Checkpoint& checkpoint, unsigned threads,
                              const Progress& progress) {
    const Schema& schema = checkpoint.schema();
    const BlockGrid grid(schema, kDefaultLog2BlockElements);
    std::vector<TensorSeed> seeds;
    for (const TensorInfo& tensor : schema.tensors()) seeds.push_back(seed_of(tensor));
    StateDigest digest;
    std::uint64_t done = 0;
    WISP_TRY(ordered_parallel<StateDigest>(
        grid.count(), thread_count(threads),
        [&](std::uint64_t index, unsigned) -> Result<StateDigest> {
            const BlockRange range = grid[index];
            const auto block = range.of(checkpoint.bytes(range.tensor));
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

std::string kernel_name() { return std::string(active_kernels().name); }

}  // namespace wisp
