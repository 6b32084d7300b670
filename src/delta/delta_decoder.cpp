#include "delta/delta_decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/text.hpp"
#include "base/try.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

Result<void> check_fit(const DeltaTensor& tensor, const TensorInfo& target,
                       const std::string& label) {
    const std::uint64_t elements = element_count_of(target);
    const unsigned width = traits_of(target.dtype).element_bytes;
    const bool packed_as_bytes =
        !tensor.shape_known && tensor.info.dtype == Dtype::kU8 && traits_of(target.dtype).bits < 8;
    const bool same = tensor.shape_known ? tensor.info == target
                                         : tensor.info.dtype == target.dtype || packed_as_bytes;
    if (!same || traits_of(tensor.info.dtype).element_bytes != width) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("delta {}: tensor {} is {} {} there but {} {} in the base; use the "
                                "checkpoint the delta was made from",
                                shown(label), shown(target.name), traits_of(tensor.info.dtype).name,
                                shape_text(tensor.info.shape), traits_of(target.dtype).name,
                                shape_text(target.shape)));
    }
    if (!tensor.shape_known && tensor.last_position >= elements) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("delta {}: tensor {} has position {} but only {} elements; fetch "
                                "the delta again, or use the checkpoint it was made from",
                                shown(label), shown(target.name), tensor.last_position, elements));
    }
    return {};
}

/// Blocks of every element name those too that stay as they are.
void append_differing(const BlockChanges& part, unsigned width, BlockChanges& changes) {
    for (std::size_t i = 0; i < part.positions.size(); ++i) {
        const std::byte* before = part.old_bits.data() + i * width;
        const std::byte* after = part.new_bits.data() + i * width;
        if (std::memcmp(before, after, width) == 0) continue;
        changes.positions.push_back(part.positions[i]);
        changes.old_bits.insert(changes.old_bits.end(), before, before + width);
        changes.new_bits.insert(changes.new_bits.end(), after, after + width);
    }
}

void sort_by_position(BlockChanges& changes) {
    std::vector<std::uint32_t> order(changes.count());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [&](std::uint32_t i) { return changes.positions[i]; });
    BlockChanges sorted;
    sorted.element_bytes = changes.element_bytes;
    sorted.old_bits.resize(changes.old_bits.size());
    sorted.new_bits.resize(changes.new_bits.size());
    for (const std::uint32_t i : order) sorted.positions.push_back(changes.positions[i]);
    gather(changes.old_bits.data(), order, changes.element_bytes, sorted.old_bits.data());
    gather(changes.new_bits.data(), order, changes.element_bytes, sorted.new_bits.data());
    changes = std::move(sorted);
}

}  // namespace

Result<void> decode_block(Codec codec, std::span<const std::byte> coded,
                          const OverlaidBlock& old_block, const DtypeTraits& traits,
                          BlockDecoders& decoders, BlockChanges& changes) {
    return codec == Codec::kSwift
               ? decoders.swift.decode(coded, old_block, traits, changes)
               : decoders.compact.decode(coded, old_block.bytes, traits, changes);
}

Result<BoundDelta> BoundDelta::bind(const VerifiedDelta& delta, const Schema& schema) {
    BoundDelta bound(delta);
    bound.tensor_of_.assign(schema.tensors().size(), kUntouched);
    for (const TensorInfo& tensor : schema.tensors()) {
        bound.traits_.push_back(traits_of(tensor.dtype));
    }
    for (std::size_t i = 0; i < delta.tensors().size(); ++i) {
        const DeltaTensor& tensor = delta.tensors()[i];
        const auto at = schema.find(tensor.info.name);
        if (!at) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("delta {} changes tensor {}, which the base does not have; use "
                                    "the checkpoint the delta was made from",
                                    shown(delta.label()), shown(tensor.info.name)));
        }
        WISP_TRY(check_fit(tensor, schema.tensors()[*at], delta.label()));
        bound.tensor_of_[*at] = i;
    }
    if (delta.sealed() && delta.facts().schema_digest != schema.digest()) {
        return fail(
            ErrorKind::kInvalid,
            fmt::format("delta {} was made for other tensors (schema {} there, {} in the "
                        "base): some tensor is missing, extra, or of another dtype or "
                        "shape; use the checkpoint the delta was made from",
                        shown(delta.label()), shown(delta.facts().schema_digest), schema.digest()));
    }
    return bound;
}

bool BoundDelta::touches(const BlockRange& range) const {
    const std::size_t index = tensor_of_[range.tensor];
    if (index == kUntouched) return false;
    const DeltaTensor& tensor = delta_->tensors()[index];
    if (!tensor.shape_known) return true;
    const auto [first, past] = blocks_in(tensor, range);
    for (std::size_t i = first; i < past; ++i) {
        if (!tensor.blocks[i].empty()) return true;
    }
    return false;
}

bool BoundDelta::needs_whole_block(const BlockRange& range) const {
    const std::size_t index = tensor_of_[range.tensor];
    if (index == kUntouched) return false;
    if (delta_->facts().codec != Codec::kSwift) return true;
    if (!delta_->tensors()[index].proofs.empty()) return false;  // tiles are gathered
    const unsigned log2 = delta_->log2_block_elements();
    if (range.element_count > std::uint64_t{1} << log2) return true;
    const auto& blocks = delta_->tensors()[index].blocks;
    return !SwiftDecoder::is_sparse(blocks[static_cast<std::size_t>(range.first_element >> log2)]);
}

Result<void> BoundDelta::decode(const BlockRange& range, const OverlaidBlock& old_block,
                                BlockDecoders& decoders, BlockChanges& changes) const {
    changes.clear();
    changes.element_bytes = range.element_bytes;
    const std::size_t index = tensor_of_[range.tensor];
    if (index == kUntouched) return {};
    const DeltaTensor& tensor = delta_->tensors()[index];
    if (!tensor.shape_known) {
        decode_trl(tensor, range, old_block.bytes, changes);
        return {};
    }
    auto decoded = tensor.proofs.empty()
                       ? decode_blocks(tensor, range, old_block, decoders, changes)
                       : decode_tiles(tensor, range, old_block, decoders, changes);
    if (decoded) return {};
    Error error = std::move(decoded).error();
    error.text = fmt::format(
        "delta {}: tensor {}, elements from {}: {}; use the checkpoint the delta was made from, or "
        "fetch the delta again",
        shown(delta_->label()), shown(tensor.info.name), range.first_element, error.text);
    return std::unexpected(std::move(error));
}

std::pair<std::size_t, std::size_t> blocks_in(const DeltaTensor& tensor, const BlockRange& range) {
    const unsigned log2 = tensor.cut.log2_band_elements;
    const std::uint64_t end = range.first_element + range.element_count;
    const std::uint64_t past = block_count_of(end, log2);
    return {static_cast<std::size_t>((range.first_element >> log2) * tensor.cut.strips),
            static_cast<std::size_t>(past * tensor.cut.strips)};
}

Result<void> BoundDelta::decode_tiles(const DeltaTensor& tensor, const BlockRange& range,
                                      const OverlaidBlock& old_block, BlockDecoders& decoders,
                                      BlockChanges& changes) const {
    const unsigned width = range.element_bytes;
    const DtypeTraits& traits = traits_[range.tensor];
    const TileGrid grid(tensor.info, tensor.cut);
    const auto [first, past] = blocks_in(tensor, range);
    BlockChanges part;
    for (std::size_t i = first; i < past; ++i) {
        if (tensor.blocks[i].empty()) continue;
        const Tile tile = grid[i];
        WISP_ASSIGN(
            const SwiftReading reading,
            read_swift_positions(tensor.blocks[i], static_cast<std::size_t>(tile.element_count()),
                                 traits, part.positions));
        tile.spread(part.positions, range.first_element);
        part.old_bits.resize(part.positions.size() * width);
        part.new_bits.resize(part.old_bits.size());
        old_block.gather(part.positions, width, part.old_bits.data());
        WISP_TRY(decoders.swift.values(reading, part.old_bits, part.new_bits));
        append_differing(part, width, changes);
    }
    if (tensor.cut.strips > 1) sort_by_position(changes);
    return {};
}

Result<void> BoundDelta::decode_blocks(const DeltaTensor& tensor, const BlockRange& range,
                                       const OverlaidBlock& old_block, BlockDecoders& decoders,
                                       BlockChanges& changes) const {
    const auto decode_one = [&](std::size_t block, const OverlaidBlock& old_part,
                                BlockChanges& into) {
        return decode_block(delta_->facts().codec, tensor.blocks[block], old_part,
                            traits_[range.tensor], decoders, into);
    };
    const std::uint64_t own = std::uint64_t{1} << delta_->log2_block_elements();
    const auto first_block =
        static_cast<std::size_t>(range.first_element >> delta_->log2_block_elements());
    if (range.element_count <= own) return decode_one(first_block, old_block, changes);
    BlockChanges part;
    for (std::uint64_t at = 0; at < range.element_count; at += own) {
        const std::uint64_t count = std::min(own, range.element_count - at);
        const auto old_part =
            old_block.bytes.subspan(static_cast<std::size_t>(at * range.element_bytes),
                                    static_cast<std::size_t>(count * range.element_bytes));
        WISP_TRY(decode_one(first_block + static_cast<std::size_t>(at / own), old_part, part));
        for (const std::uint32_t position : part.positions) {
            changes.positions.push_back(position + static_cast<std::uint32_t>(at));
        }
        changes.old_bits.insert(changes.old_bits.end(), part.old_bits.begin(), part.old_bits.end());
        changes.new_bits.insert(changes.new_bits.end(), part.new_bits.begin(), part.new_bits.end());
    }
    return {};
}

}  // namespace wisp
