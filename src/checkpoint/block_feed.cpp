#include "checkpoint/block_feed.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "checkpoint/blocks.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "kernel/kernels.hpp"

namespace wisp {

Result<void> WholeStream::restart() {
    given_ = false;
    return {};
}

Result<std::span<const WeightPiece>> WholeStream::next() {
    pieces_.clear();
    if (!given_) {
        for (std::size_t i = 0; i < schema().tensors().size(); ++i) {
            pieces_.push_back({i, 0, weights_->bytes(i), false});
        }
    }
    given_ = true;
    return pieces_;
}

BlockFeed::BlockFeed(WeightStream& stream, const Schema& schema)
    : stream_(&stream), schema_(&schema), grid_(schema, kLog2BlockElements) {}

Result<void> BlockFeed::restart() {
    begin_ = end_ = 0;
    placed_.clear();
    return stream_->restart();
}

Result<bool> BlockFeed::next_group() {
    begin_ = end_;
    placed_.clear();
    if (begin_ == grid_.count()) return false;
    WISP_ASSIGN(const auto pieces, stream_->next());
    for (const WeightPiece& piece : pieces) WISP_TRY(place(piece));
    if (begin_ != end_) return true;
    if (!pieces.empty()) return next_group();  // nothing but tensors without elements
    const BlockRange missing = grid_[begin_];
    return fail(ErrorKind::kInvalid,
                fmt::format("the weights end before element {} of tensor {}; hand over all of them",
                            missing.first_element, shown(schema_->tensors()[missing.tensor].name)));
}

Result<void> BlockFeed::place(const WeightPiece& piece) {
    if (piece.bytes.empty()) return {};
    if (end_ == grid_.count() || piece.tensor >= schema_->tensors().size()) {
        return fail(ErrorKind::kInvalid, "there are more weights than the schema has");
    }
    const BlockRange next = grid_[end_];
    const TensorInfo& tensor = schema_->tensors()[next.tensor];
    const bool rounded = piece.is_f32 && tensor.dtype == Dtype::kBf16;
    const unsigned width = rounded ? 4 : next.element_bytes;
    const std::uint64_t count = piece.bytes.size() / width;
    const std::uint64_t rest = element_count_of(tensor) - next.first_element;
    if (piece.tensor != next.tensor || piece.first_element != next.first_element ||
        piece.is_f32 != rounded || piece.bytes.size() % width != 0 || count > rest ||
        (count < rest && count % kBlockElements != 0)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("element {} of tensor {} is next, but {} bytes of element {} of {} "
                                "came; hand over whole pieces in the order of the schema",
                                next.first_element, shown(tensor.name), piece.bytes.size(),
                                piece.first_element, shown(schema_->tensors()[piece.tensor].name)));
    }
    placed_.push_back({end_, piece});
    end_ += block_count_of(count, kLog2BlockElements);
    return {};
}

std::span<const std::byte> BlockFeed::block(std::uint64_t index, Bytes& buffer) const {
    return part(index, 0, range(index).element_count, buffer);
}

std::span<const std::byte> BlockFeed::part(std::uint64_t index, std::uint64_t first,
                                           std::uint64_t count, Bytes& buffer) const {
    const std::uint64_t block = begin_ + index;
    const auto after = std::ranges::upper_bound(placed_, block, {}, &Placed::first_block);
    const WeightPiece& piece = std::prev(after)->piece;
    BlockRange range = grid_[block];
    range.first_element += first - piece.first_element;
    range.element_count = count;
    if (!piece.is_f32) return range.of(piece.bytes);
    range.element_bytes = 4;
    buffer.resize(static_cast<std::size_t>(count) * 2);
    active_kernels().round_to_bf16(range.of(piece.bytes).data(), static_cast<std::size_t>(count),
                                   buffer.data());
    return buffer;
}

Result<StateDigest> write_stream(WeightStream& stream, const std::filesystem::path& path,
                                 const Metadata& metadata, unsigned asked_threads,
                                 const Progress& progress) {
    const Schema& schema = stream.schema();
    const WeightsLayout layout = weights_layout(schema, metadata);
    WISP_ASSIGN(PendingFile file, PendingFile::create(path));
    WISP_TRY(file.append(layout.header));
    WISP_TRY(file.reserve(layout.header.size() + layout.data_bytes));
    std::vector<std::uint64_t> begins(schema.tensors().size());
    std::uint64_t at = layout.header.size();
    for (const std::size_t tensor : layout.order) {
        const TensorInfo& info = schema.tensors()[tensor];
        begins[tensor] =
            std::exchange(at, at + element_count_of(info) * traits_of(info.dtype).element_bytes);
    }
    BlockFeed feed(stream, schema);
    const std::vector<TensorSeed> seeds = seeds_of(schema);
    const unsigned threads = thread_count(asked_threads);
    std::vector<Bytes> buffers(threads);
    StateDigest digest;
    WISP_TRY(read_blocks<StateDigest>(
        feed, threads, {"digest", &progress},
        [&](std::uint64_t index, unsigned thread) -> Result<StateDigest> {
            const BlockRange range = feed.range(index);
            const auto block = feed.block(index, buffers[thread]);
            const std::uint64_t inside = range.first_element * range.element_bytes;
            WISP_TRY(write_at(file.handle(), begins[range.tensor] + inside, block, path));
            return active_kernels().mix_bytes(block.data(), block.size(), seeds[range.tensor],
                                              range.first_word());
        },
        [&](std::uint64_t, StateDigest part) -> Result<void> {
            digest += part;
            return {};
        }));
    WISP_TRY(file.commit_unsynced());
    return digest;
}

}  // namespace wisp
