#include "delta/delta_decoder.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"

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
    const unsigned log2 = delta_->log2_block_elements();
    const std::uint64_t end = range.first_element + range.element_count;
    for (std::uint64_t at = range.first_element; at < end; at += std::uint64_t{1} << log2) {
        if (!tensor.blocks[static_cast<std::size_t>(at >> log2)].empty()) return true;
    }
    return false;
}

bool BoundDelta::needs_whole_block(const BlockRange& range) const {
    const std::size_t index = tensor_of_[range.tensor];
    if (index == kUntouched) return false;
    if (delta_->facts().codec != Codec::kSwift) return true;
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
    auto decoded = decode_blocks(tensor, range, old_block, decoders, changes);
    if (decoded) return {};
    Error error = std::move(decoded).error();
    error.text = fmt::format(
        "delta {}: tensor {}, elements from {}: {}; use the checkpoint the delta was made from, or "
        "fetch the delta again",
        shown(delta_->label()), shown(tensor.info.name), range.first_element, error.text);
    return std::unexpected(std::move(error));
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
