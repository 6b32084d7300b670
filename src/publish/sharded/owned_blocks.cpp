#include "publish/sharded/owned_blocks.hpp"

#include <algorithm>
#include <numeric>

#include "base/file.hpp"
#include "base/parallel.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "delta/delta_decoder.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

std::vector<OwnBlock> blocks_of(const Schema& schema, const std::vector<BlockSpan>& spans,
                                unsigned log2) {
    std::vector<OwnBlock> blocks;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const TensorInfo& tensor = schema.tensors()[static_cast<std::size_t>(spans[i].tensor)];
        std::size_t offset = 0;
        for (std::uint64_t b = 0; b < spans[i].block_count; ++b) {
            OwnBlock block;
            block.range.tensor = static_cast<std::size_t>(spans[i].tensor);
            block.range.first_element = (spans[i].first_block + b) << log2;
            block.range.element_count = std::min(
                std::uint64_t{1} << log2, element_count_of(tensor) - block.range.first_element);
            block.range.element_bytes = traits_of(tensor.dtype).element_bytes;
            block.span = i;
            block.offset = offset;
            offset += block.size();
            blocks.push_back(block);
        }
    }
    return blocks;
}

}  // namespace

OwnBlocks::OwnBlocks(Schema schema, std::vector<BlockSpan> spans, unsigned log2, unsigned threads)
    : schema_(std::move(schema)),
      spans_(std::move(spans)),
      log2_(log2),
      threads_(thread_count(threads)),
      seeds_(seeds_of(schema_)),
      blocks_(blocks_of(schema_, spans_, log2)) {
    std::size_t start = 0;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
        span_starts_.push_back(start);
        start += span_bytes(i);
    }
}

std::size_t OwnBlocks::span_bytes(std::size_t span) const {
    return static_cast<std::size_t>(plain_bytes({spans_[span]}, schema_, log2_));
}

Result<StateDigest> OwnBlocks::digest(const SpanViews& views) const {
    StateDigest digest;
    WISP_TRY(ordered_parallel<StateDigest>(
        blocks_.size(), threads_,
        [&](std::uint64_t index, unsigned) -> Result<StateDigest> {
            const OwnBlock& block = blocks_[index];
            const auto bytes = block.of(views[block.span]);
            return active_kernels().mix_bytes(bytes.data(), bytes.size(),
                                              seeds_[block.range.tensor], block.range.first_word());
        },
        [&](std::uint64_t, StateDigest part) -> Result<void> {
            digest += part;
            return {};
        }));
    return digest;
}

Result<void> OwnBlocks::write_segment(const SpanViews& views,
                                      const std::filesystem::path& path) const {
    const std::vector<std::size_t> order = weights_layout(schema_).order;
    std::vector<std::size_t> place(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    std::vector<std::size_t> by_place(spans_.size());
    std::iota(by_place.begin(), by_place.end(), std::size_t{0});
    std::ranges::stable_sort(by_place, {}, [&](std::size_t span) {
        return place[static_cast<std::size_t>(spans_[span].tensor)];
    });
    WISP_ASSIGN(PendingFile file, PendingFile::create(path));
    for (const std::size_t span : by_place) WISP_TRY(file.append(views[span]));
    return file.commit_unsynced();
}

Result<void> OwnBlocks::apply(Codec codec, const std::filesystem::path& coded_path,
                              const std::vector<ManifestBlock>& lengths,
                              std::vector<Bytes>& kept) const {
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(coded_path));
    std::vector<std::size_t> begins(blocks_.size() + 1, 0);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        begins[i + 1] = begins[i] + static_cast<std::size_t>(lengths[i].bytes);
    }
    if (begins.back() != mapped.bytes().size()) {
        return fail(ErrorKind::kCorrupt, "a segment that waited on the disk was cut");
    }
    std::vector<BlockDecoders> decoders(threads_);
    std::vector<BlockChanges> changes(threads_);
    return ordered_parallel<bool>(
        blocks_.size(), threads_,
        [&](std::uint64_t index, unsigned thread) -> Result<bool> {
            const OwnBlock& block = blocks_[index];
            const auto coded =
                mapped.bytes().subspan(begins[index], begins[index + 1] - begins[index]);
            if (coded.empty()) return false;
            std::byte* bytes = kept[block.span].data() + block.offset;
            const Dtype dtype = schema_.tensors()[block.range.tensor].dtype;
            const std::span<const std::byte> old_block(bytes, block.size());
            WISP_TRY(decode_block(codec, coded, old_block, traits_of(dtype), decoders[thread],
                                  changes[thread]));
            scatter_new_bits(changes[thread], bytes);
            return true;
        },
        [](std::uint64_t, bool) -> Result<void> { return {}; });
}

}  // namespace wisp
