// A delta from lists of changes, made elsewhere or kept here; the baseline has the old
// bits that they lack.
#include <fmt/format.h>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "delta/delta_writer.hpp"
#include "delta/diff_weights.hpp"

namespace wisp {
namespace {

/// Which of the positions lie in each block.
Result<std::vector<std::size_t>> cut_into_blocks(const TensorChanges& found,
                                                 const TensorInfo& tensor) {
    const unsigned width = traits_of(tensor.dtype).element_bytes;
    const std::size_t count = found.positions.size();
    const std::uint64_t elements = element_count_of(tensor);
    if (found.first_element % kBlockElements != 0 || found.first_element >= elements ||
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
        while (starts.size() <= found.positions[i] / kBlockElements) starts.push_back(i);
    }
    starts.push_back(count);
    return starts;
}

/// Those with positions from `from` to `to`, held against the old block.
Result<BlockChanges> changes_of_block(const TensorChanges& found, std::size_t from, std::size_t to,
                                      const BlockRange& range,
                                      std::span<const std::byte> old_block) {
    const std::size_t width = range.element_bytes;
    BlockChanges changes;
    changes.element_bytes = range.element_bytes;
    for (std::size_t i = from; i < to; ++i) {
        const auto position = static_cast<std::uint32_t>(found.positions[i] % kBlockElements);
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

/// Lists of changes, block by block, into a delta; what lies between them is unchanged.
class ListWriter {
  public:
    ListWriter(const Weights& base, DeltaWriter writer, unsigned threads)
        : base_(&base),
          writer_(std::move(writer)),
          grid_(base.schema(), kLog2BlockElements),
          seeds_(seeds_of(base.schema())),
          workers_(thread_count(threads)) {}
    static Result<ListWriter> create(const Weights& base, const std::filesystem::path& delta,
                                     const DiffOptions& options) {
        WISP_ASSIGN(DeltaWriter writer, DeltaWriter::create(delta, options.codec, base.schema(),
                                                            kLog2BlockElements, options.slices));
        return ListWriter(base, std::move(writer), options.threads);
    }
    /// Old bits that the blocks do not name are taken from the base. `touched`: of all, or none.
    Result<void> write(std::span<const MovedBlock> blocks,
                       std::span<const TouchedSums> touched = {}) {
        return ordered_parallel<WrittenBlock>(
            blocks.size(), static_cast<unsigned>(workers_.size()),
            [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
                const BlockRange range = grid_[block_of(blocks[index])];
                return writer_.encode_changes(range, range.of(base_->bytes(range.tensor)),
                                              blocks[index].changes,
                                              touched.empty() ? nullptr : &touched[index],
                                              seeds_[range.tensor], workers_[thread]);
            },
            [&](std::uint64_t index, WrittenBlock block) -> Result<void> {
                WISP_TRY(pass_over(block_of(blocks[index])));
                return writer_.add(grid_[next_++], std::move(block));
            });
    }

    Result<DiffReport> finish(const StateDigest& known, const DiffOptions& options, Keep keep) {
        WISP_TRY(pass_over(grid_.count()));
        return writer_.finish(known, options.step.value_or(0), keep);
    }

  private:
    std::uint64_t block_of(const MovedBlock& block) const {
        return grid_.first_of(block.tensor) + (block.first_element >> kLog2BlockElements);
    }
    Result<void> pass_over(std::uint64_t to) {
        if (to < next_) {
            return fail(ErrorKind::kInvalid, "changes must come in the order of the schema");
        }
        for (; next_ < to; ++next_) {
            const BlockRange range = grid_[next_];
            WrittenBlock unchanged;
            unchanged.encoded.tensor = range.tensor;
            WISP_TRY(writer_.add(range, std::move(unchanged)));
        }
        return {};
    }

    const Weights* base_;
    DeltaWriter writer_;
    BlockGrid grid_;
    std::vector<TensorSeed> seeds_;
    std::vector<WriteWorker> workers_;
    std::uint64_t next_ = 0;  // block
};

}  // namespace

Result<std::optional<DiffReport>> take_changes(const Weights& base, const StateDigest& known,
                                               ChangeStream& stream,
                                               const std::filesystem::path& delta,
                                               const DiffOptions& options, ChangeBuffer& kept) {
    const Schema& schema = base.schema();
    const BlockGrid grid(schema, kLog2BlockElements);
    std::optional<ListWriter> writer;
    std::uint64_t next = 0;  // block
    for (;;) {
        WISP_ASSIGN(const TensorChanges found, stream.next());
        if (found.positions.empty()) break;
        if (found.tensor >= schema.tensors().size()) {
            return fail(ErrorKind::kInvalid, "there are changes of a tensor the schema has not");
        }
        WISP_ASSIGN(const auto starts, cut_into_blocks(found, schema.tensors()[found.tensor]));
        const std::uint64_t first =
            grid.first_of(found.tensor) + (found.first_element >> kLog2BlockElements);
        if (first < next) {
            return fail(ErrorKind::kInvalid, "changes must come in the order of the schema");
        }
        std::vector<MovedBlock> blocks;
        for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
            const BlockRange range = grid[first + i];
            WISP_ASSIGN(BlockChanges changes,
                        changes_of_block(found, starts[i], starts[i + 1], range,
                                         range.of(base.bytes(range.tensor))));
            blocks.push_back({range.tensor, range.first_element, std::move(changes)});
        }
        next = first + blocks.size();
        std::size_t done = 0;
        for (; !writer && done < blocks.size() && kept.has_room(blocks[done].changes); ++done) {
            MovedBlock& block = blocks[done];
            kept.keep(block.tensor, block.first_element, std::move(block.changes));
        }
        if (done == blocks.size()) continue;
        if (!writer) {
            WISP_ASSIGN(writer, ListWriter::create(base, delta, options));
            WISP_TRY(writer->write(kept.give_up()));
        }
        WISP_TRY(writer->write(std::span(blocks).subspan(done)));
    }
    if (!writer) return std::optional<DiffReport>{};
    WISP_ASSIGN(DiffReport report, writer->finish(known, options, Keep::kForNow));
    return std::optional(report);
}

Result<DiffReport> write_buffered(const Weights& base, const StateDigest& known,
                                  const ChangeBuffer& found, const std::filesystem::path& delta,
                                  const DiffOptions& options, Keep keep) {
    WISP_ASSIGN(ListWriter writer, ListWriter::create(base, delta, options));
    WISP_TRY(writer.write(found.blocks(), found.touched()));
    return writer.finish(known, options, keep);
}

}  // namespace wisp
