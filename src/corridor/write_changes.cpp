// A delta from lists of changes, made where the weights are; the baseline is here.
#include <fmt/format.h>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "codec/block_layout.hpp"
#include "corridor/delta_writer.hpp"

namespace wisp {
namespace {

/// Which of the positions lie in each block.
Result<std::vector<std::size_t>> cut_into_blocks(const TensorChanges& found,
                                                 const TensorInfo& tensor) {
    const unsigned width = traits_of(tensor.dtype).element_bytes;
    const std::size_t count = found.positions.size();
    const std::uint64_t elements = element_count_of(tensor);
    if (found.first_element % kPieceElements != 0 || found.first_element >= elements ||
        found.old_bits.size() != count * width || found.new_bits.size() != count * width) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("the changes of tensor {} do not fit it", shown(tensor.name)));
    }
    std::vector<std::size_t> starts = {0};
    for (std::size_t i = 0; i < count; ++i) {
        if (found.positions[i] >= elements - found.first_element ||
            (i > 0 && found.positions[i] <= found.positions[i - 1])) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("change {} of tensor {} is at {}: positions must increase and "
                                    "lie in the tensor",
                                    i, shown(tensor.name), found.positions[i]));
        }
        while (starts.size() <= found.positions[i] / kPieceElements) starts.push_back(i);
    }
    starts.push_back(count);
    return starts;
}

Result<BlockChanges> changes_of_block(const TensorChanges& found, std::size_t from, std::size_t to,
                                      const BlockRange& range,
                                      std::span<const std::byte> old_block) {
    const std::size_t width = range.element_bytes;
    BlockChanges changes;
    changes.element_bytes = range.element_bytes;
    for (std::size_t i = from; i < to; ++i) {
        const auto position = static_cast<std::uint32_t>(found.positions[i] % kPieceElements);
        const auto before = found.old_bits.subspan(i * width, width);
        const auto after = found.new_bits.subspan(i * width, width);
        if (!std::ranges::equal(before, old_block.subspan(position * width, width))) {
            return fail(ErrorKind::kWrongBase,
                        fmt::format("element {} of tensor {} was not what its change says",
                                    range.first_element + position, range.tensor));
        }
        if (std::ranges::equal(before, after)) continue;
        changes.positions.push_back(position);
        changes.old_bits.insert(changes.old_bits.end(), before.begin(), before.end());
        changes.new_bits.insert(changes.new_bits.end(), after.begin(), after.end());
    }
    return changes;
}

}  // namespace

Result<DiffReport> write_changes(const Weights& base, const StateDigest& known,
                                 ChangeStream& stream, const std::filesystem::path& delta,
                                 const DiffOptions& options, Keep keep, KeptChanges* kept) {
    const Schema& schema = base.schema();
    WISP_ASSIGN(DeltaWriter writer,
                DeltaWriter::create(delta, options.codec, schema, kDefaultLog2BlockElements));
    writer.keep_in(kept);
    const BlockGrid grid(schema, kDefaultLog2BlockElements);
    const unsigned threads = thread_count(options.threads);
    std::vector<WriteWorker> workers(threads);
    const std::vector<TensorSeed> seeds = seeds_of(schema);
    std::uint64_t next = 0;  // block
    const auto pass_over = [&](std::size_t tensor, std::uint64_t first_element) -> Result<void> {
        for (; next < grid.count(); ++next) {
            const BlockRange range = grid[next];
            if (range.tensor == tensor && range.first_element == first_element) return {};
            WrittenBlock unchanged;
            unchanged.encoded.tensor = range.tensor;
            WISP_TRY(writer.add(range, std::move(unchanged)));
        }
        return tensor == SIZE_MAX
                   ? Result<void>{}
                   : fail(ErrorKind::kInvalid, "changes must come in the order of the schema");
    };
    for (;;) {
        WISP_ASSIGN(const TensorChanges found, stream.next());
        if (found.positions.empty()) break;
        if (found.tensor >= schema.tensors().size()) {
            return fail(ErrorKind::kInvalid, "there are changes of a tensor the schema has not");
        }
        WISP_ASSIGN(const auto starts, cut_into_blocks(found, schema.tensors()[found.tensor]));
        WISP_TRY(pass_over(found.tensor, found.first_element));
        WISP_TRY(ordered_parallel<WrittenBlock>(
            starts.size() - 1, threads,
            [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
                const BlockRange range = grid[next + index];
                const auto old_block = range.of(base.bytes(range.tensor));
                WISP_ASSIGN(
                    BlockChanges changes,
                    changes_of_block(found, starts[index], starts[index + 1], range, old_block));
                return writer.encode_changes(range, old_block, std::move(changes),
                                             seeds[range.tensor], workers[thread]);
            },
            [&](std::uint64_t index, WrittenBlock block) -> Result<void> {
                return writer.add(grid[next + index], std::move(block));
            }));
        next += starts.size() - 1;
    }
    WISP_TRY(pass_over(SIZE_MAX, 0));
    return writer.finish(known, options.step.value_or(0), keep);
}

}  // namespace wisp
