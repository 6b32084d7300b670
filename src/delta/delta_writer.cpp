#include "delta/delta_writer.hpp"

#include <fmt/format.h>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/tile_encoder.hpp"
#include "delta/trl_sealer.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

/// The changes, or the worker's copy of them that has the old bits.
const BlockChanges& with_old_bits(const BlockChanges& changes, std::span<const std::byte> old_block,
                                  WriteWorker& worker) {
    if (changes.old_bits.size() == changes.new_bits.size()) return changes;
    worker.complete = changes;
    worker.complete.old_bits.resize(changes.new_bits.size());
    gather(old_block.data(), changes.positions, changes.element_bytes,
           worker.complete.old_bits.data());
    return worker.complete;
}

}  // namespace

Result<DeltaWriter> DeltaWriter::create(const std::filesystem::path& output, Codec codec,
                                        const Schema& schema, unsigned log2_block_elements,
                                        unsigned slices) {
    if (slices > 0 && codec != Codec::kSwift) {
        return fail(ErrorKind::kInvalid,
                    "only deltas of the codec swift can be sliced; use --codec swift");
    }
    if (slices > limits::kSlices) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("a delta has at most {} slices, not {}", limits::kSlices, slices));
    }
    WISP_ASSIGN(auto sealer,
                DeltaSealer::create(output, codec, schema, log2_block_elements, slices));
    return DeltaWriter(codec, schema, slices, std::move(sealer));
}

WrittenBlock encode_block(Codec codec, const TensorInfo& tensor, const BlockRange& range,
                          std::span<const std::byte> old_block,
                          std::span<const std::byte> new_block, const TensorSeed& seed,
                          WriteWorker& worker, bool keep_changes) {
    WrittenBlock written;
    written.encoded.tensor = range.tensor;
    const DtypeTraits& traits = traits_of(tensor.dtype);
    const ScanDigest digest{&seed, range.first_word(), &written.old_state};
    BlockChanges* const kept = keep_changes ? &written.changes : nullptr;
    EncodedDifference difference;
    bool encoded = false;
    if (codec == Codec::kCompact) {
        difference =
            worker.encoder.encode_difference(old_block, new_block, traits, seed, digest,
                                             range.first_word(), written.encoded.coded, kept);
        encoded = true;
    } else if (codec == Codec::kSwift) {
        encoded = worker.swift.encode_if_dense(old_block, new_block, traits, seed, digest,
                                               range.first_word(), written.encoded.coded, kept,
                                               difference);
    }
    if (encoded) {
        written.encoded.changed_elements = difference.changed_elements;
        written.touched = difference.touched;
        return written;
    }
    worker.detector.detect(old_block, new_block, range, seed, true, worker.found);
    written.touched = worker.found.touched;
    written.old_state = worker.found.old_state;
    written.encoded.changed_elements = worker.found.changes.count();
    if (codec == Codec::kSwift) {
        worker.swift.encode(old_block, worker.found.changes, traits, written.encoded.coded);
        if (!keep_changes) return written;  // and the worker keeps its room
    }
    written.changes = std::move(worker.found.changes);
    return written;
}

WrittenBlock DeltaWriter::encode(const BlockRange& range, std::span<const std::byte> old_block,
                                 std::span<const std::byte> new_block, const TensorSeed& seed,
                                 WriteWorker& worker) const {
    const TensorInfo& tensor = schema_->tensors()[range.tensor];
    if (slices_ > 0) {
        return encode_tiles(tensor, choose_cut(tensor, slices_), range, old_block, new_block, seed,
                            worker, kept_ != nullptr);
    }
    return encode_block(codec_, tensor, range, old_block, new_block, seed, worker,
                        kept_ != nullptr);
}

WrittenBlock DeltaWriter::encode_changes(const BlockRange& range,
                                         std::span<const std::byte> old_block,
                                         const BlockChanges& changes, const TouchedSums* touched,
                                         const TensorSeed& seed, WriteWorker& worker) const {
    const TensorInfo& tensor = schema_->tensors()[range.tensor];
    if (slices_ > 0) {
        return encode_tiled_changes(tensor, choose_cut(tensor, slices_), range, old_block,
                                    with_old_bits(changes, old_block, worker), seed, worker,
                                    kept_ != nullptr);
    }
    return wisp::encode_changes(codec_, tensor, range, old_block, changes, touched, seed, worker,
                                kept_ != nullptr || !holds_blocks(codec_));
}

WrittenBlock encode_changes(Codec codec, const TensorInfo& tensor, const BlockRange& range,
                            std::span<const std::byte> old_block, const BlockChanges& given,
                            const TouchedSums* touched, const TensorSeed& seed, WriteWorker& worker,
                            bool keep_changes) {
    WrittenBlock written;
    written.encoded.tensor = range.tensor;
    written.encoded.changed_elements = given.count();
    if (given.empty()) return written;
    const BlockChanges& changes = with_old_bits(given, old_block, worker);
    written.touched =
        touched != nullptr ? *touched : touched_sums(old_block, changes, seed, range.first_word());
    const DtypeTraits& traits = traits_of(tensor.dtype);
    if (codec == Codec::kCompact) {
        worker.encoder.encode(old_block, changes, traits, written.encoded.coded);
    } else if (codec == Codec::kSwift) {
        worker.swift.encode(old_block, changes, traits, written.encoded.coded);
    }
    if (keep_changes) written.changes = changes;
    return written;
}

Result<void> DeltaWriter::add(const BlockRange& range, WrittenBlock block) {
    touched_ += block.touched;
    old_state_ += block.old_state;
    if (holds_blocks(codec_)) {
        WISP_TRY(sealer_->add(block.encoded));
        if (kept_ != nullptr) {
            kept_->keep(range.tensor, range.first_element, std::move(block.changes));
        }
        return {};
    }
    const TensorInfo& tensor = schema_->tensors()[range.tensor];
    if (codec_ == Codec::kPlain) {
        append_indices(block.changes, range.first_element,
                       needs_wide_indices(element_count_of(tensor)), block.encoded.coded);
    } else {
        if (range.tensor != gap_tensor_) gaps_ = {};
        gap_tensor_ = range.tensor;
        if (!gaps_.append(block.changes, range.first_element, block.encoded.coded)) {
            return fail(ErrorKind::kUnsupported,
                        fmt::format("tensor {} has a gap of more than 2^32 elements, which the gap "
                                    "codec cannot write; use --codec compact, swift or plain",
                                    shown(tensor.name)));
        }
        block.encoded.wide_gaps = gaps_.largest_gap() > 0xFFFF;
    }
    if (kept_ != nullptr) kept_->keep(range.tensor, range.first_element, block.changes);
    block.encoded.values = std::move(block.changes.new_bits);
    return sealer_->add(block.encoded);
}

Result<DiffReport> DeltaWriter::finish(const StateDigest& base, std::uint64_t step, Keep keep) {
    DeltaFacts facts;
    facts.codec = codec_;
    facts.step = step;
    facts.total_elements = schema_->total_elements();
    facts.base = base;
    facts.touched = touched_.before;
    facts.result = base - touched_.before + touched_.after;
    facts.schema_digest = schema_->digest();
    WISP_ASSIGN(SealedObject sealed, sealer_->finish(facts));
    WISP_TRY(keep == Keep::kForGood ? sealed.commit() : sealed.commit_unsynced());
    DiffReport report;
    report.step = step;
    report.total_elements = facts.total_elements;
    report.changed_elements = facts.changed_elements;
    report.changed_tensors = facts.changed_tensors;
    report.checkpoint_bytes = schema_->total_bytes();
    report.payload_bytes = sealed.payload_bytes;
    report.file_bytes = sealed.file_bytes;
    report.base = facts.base;
    report.result = facts.result;
    return report;
}

}  // namespace wisp
