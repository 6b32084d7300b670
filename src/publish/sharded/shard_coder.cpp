#include "publish/sharded/shard_coder.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "base/try.hpp"
#include "kernel/scatter.hpp"
#include "publish/dense_step.hpp"

namespace wisp {

ShardCoder::ShardCoder(const OwnBlocks& own, Codec codec, unsigned threads,
                       std::filesystem::path file, StepMemory memory)
    : own_(&own),
      codec_(codec),
      path_(std::move(file)),
      workers_(thread_count(threads)),
      memory_(std::move(memory)),
      found_(memory_.list_bytes),
      first_copied_(own.blocks().size()) {
    if (memory_.expects_dense && can_copy_from(0)) first_copied_ = 0;
}

bool ShardCoder::can_copy_from(std::size_t place) {
    const auto& blocks = own_->blocks();
    if (place == blocks.size()) return true;
    if (own_->total_bytes() - own_->start_of(blocks[place]) > memory_.copy_bytes) return false;
    if (!memory_.copy.bytes().empty()) return true;
    // Only the pages that are written to take memory.
    auto fresh = PageMemory::allocate(own_->total_bytes());
    if (fresh) memory_.copy = std::move(*fresh);
    return fresh.has_value();
}

std::span<std::byte> ShardCoder::copy_of(const OwnBlock& block) const {
    return memory_.copy.bytes().subspan(own_->start_of(block), block.size());
}

const DetectedBlock& ShardCoder::find(const OwnBlock& block, std::span<const std::byte> old_block,
                                      std::span<const std::byte> new_block, unsigned thread) {
    WriteWorker& worker = workers_[thread];
    worker.detector.detect(old_block, new_block, block.range, own_->seed_of(block), true,
                           worker.found);
    return worker.found;
}

Result<void> ShardCoder::add(const SpanViews& views, const std::vector<Bytes>& kept,
                             ShardManifest& manifest) {
    const std::size_t first = next_block_;
    const auto& blocks = own_->blocks();
    std::size_t end = first;
    while (end < blocks.size() && blocks[end].span < next_span_ + views.size()) ++end;
    const auto fresh = [&](const OwnBlock& block) {
        return block.of(views[block.span - next_span_]);
    };
    WISP_TRY(ordered_parallel<Found>(
        end - first, static_cast<unsigned>(workers_.size()),
        [&](std::uint64_t index, unsigned thread) -> Result<Found> {
            const OwnBlock& block = blocks[first + index];
            if (first + index < first_copied_) {
                // A copy, in as much memory as they take, and no more.
                return Found{find(block, block.of(kept[block.span]), fresh(block), thread), false};
            }
            std::ranges::copy(fresh(block), copy_of(block).begin());
            return Found{{}, true};
        },
        [&](std::uint64_t index, Found found) {
            return take(first + index, fresh(blocks[first + index]), std::move(found), kept,
                        manifest);
        }));
    next_block_ = end;
    next_span_ += views.size();
    return {};
}

Result<void> ShardCoder::take(std::size_t place, std::span<const std::byte> new_block, Found found,
                              const std::vector<Bytes>& kept, ShardManifest& manifest) {
    const OwnBlock& block = own_->blocks()[place];
    ManifestBlock& entry = manifest.blocks.emplace_back();
    if (found.copied) return {};
    BlockChanges& changes = found.block.changes;
    const bool has_room = found_.has_room(changes);
    if (!has_room && found_.complete() && place < first_copied_ && can_copy_from(place)) {
        first_copied_ = place;
    }
    if (place >= first_copied_) {  // found by a worker that did not know yet
        std::ranges::copy(new_block, copy_of(block).begin());
        return {};
    }
    manifest.state += found.block.old_state;
    entry.changed = changes.count();
    if (has_room) {
        found_.keep(block.range.tensor, block.range.first_element, std::move(changes),
                    found.block.touched);
        return {};
    }
    if (found_.complete()) {
        const std::vector<TouchedSums> touched(found_.touched().begin(), found_.touched().end());
        WISP_TRY(code_blocks(found_.give_up(), touched, kept, manifest));
    }
    if (changes.empty()) return {};
    const MovedBlock alone{block.range.tensor, block.range.first_element, std::move(changes)};
    return code_blocks({&alone, 1}, {&found.block.touched, 1}, kept, manifest);
}

Result<void> ShardCoder::create_file() {
    if (file_) return {};
    WISP_ASSIGN(PendingFile file, PendingFile::create(path_));
    file_.emplace(std::move(file));
    return {};
}

WrittenBlock ShardCoder::encode(const OwnBlock& block, std::span<const std::byte> old_block,
                                const BlockChanges& changes, const TouchedSums& touched,
                                unsigned thread) {
    return encode_changes(codec_, own_->tensor_of(block), block.range, old_block, changes, &touched,
                          own_->seed_of(block), workers_[thread]);
}

Result<void> ShardCoder::write(std::size_t place, const WrittenBlock& block,
                               ShardManifest& manifest) {
    manifest.state += block.old_state;  // of a block that was listed: nothing, it is in there
    manifest.touched_before += block.touched.before;
    manifest.touched_after += block.touched.after;
    manifest.blocks[place].bytes = block.encoded.coded.size();
    manifest.blocks[place].changed = block.encoded.changed_elements;
    return file_->append(block.encoded.coded);
}

Result<void> ShardCoder::code_blocks(std::span<const MovedBlock> found,
                                     std::span<const TouchedSums> touched,
                                     const std::vector<Bytes>& kept, ShardManifest& manifest) {
    WISP_TRY(create_file());
    std::vector<std::size_t> places;  // among the rank's blocks
    for (; places.size() < found.size(); ++next_coded_) {
        if (manifest.blocks[next_coded_].changed > 0) places.push_back(next_coded_);
    }
    return ordered_parallel<WrittenBlock>(
        found.size(), static_cast<unsigned>(workers_.size()),
        [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
            const OwnBlock& block = own_->blocks()[places[index]];
            const auto old_block = block.of(kept[block.span]);
            return encode(block, old_block, found[index].changes, touched[index], thread);
        },
        [&](std::uint64_t index, WrittenBlock block) {
            return write(places[index], block, manifest);
        });
}

Result<void> ShardCoder::code_copies(const std::vector<Bytes>& kept, ShardManifest& manifest) {
    const std::size_t first = first_copied_;
    const auto& blocks = own_->blocks();
    return ordered_parallel<WrittenBlock>(
        blocks.size() - first, static_cast<unsigned>(workers_.size()),
        [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
            const OwnBlock& block = blocks[first + index];
            const auto old_block = block.of(kept[block.span]);
            // By way of a list here, too: coded in one pass a block may come out in other bytes,
            // and those of a file must not depend on which rank had how much memory.
            const DetectedBlock& found = find(block, old_block, copy_of(block), thread);
            WrittenBlock written = encode(block, old_block, found.changes, found.touched, thread);
            written.old_state = found.old_state;
            return written;
        },
        [&](std::uint64_t index, WrittenBlock block) {
            return write(first + index, block, manifest);
        });
}

Result<void> ShardCoder::code(const std::vector<Bytes>& kept, ShardManifest& manifest) {
    if (done_) return {};
    WISP_TRY(create_file());
    if (found_.complete()) WISP_TRY(code_blocks(found_.blocks(), found_.touched(), kept, manifest));
    WISP_TRY(code_copies(kept, manifest));
    WISP_TRY(file_->commit_unsynced());
    done_ = true;
    return {};
}

Result<void> ShardCoder::move(std::vector<Bytes>& kept, const ShardManifest& manifest) const {
    if (!found_.complete()) return own_->apply(codec_, path_, manifest.blocks, kept);
    auto next = found_.blocks().begin();
    for (std::size_t i = 0; i < manifest.blocks.size(); ++i) {
        if (manifest.blocks[i].changed == 0) continue;
        const OwnBlock& block = own_->blocks()[i];
        std::byte* const moved = kept[block.span].data() + block.offset;
        if (i < first_copied_) {
            scatter_new_bits((next++)->changes, moved);
        } else {
            std::ranges::copy(copy_of(block), moved);
        }
    }
    return {};
}

StepMemory ShardCoder::release_memory(const ShardManifest& manifest) {
    std::uint64_t listed = 0;
    for (std::size_t i = 0; i < manifest.blocks.size(); ++i) {
        listed += list_bytes(manifest.blocks[i].changed, own_->blocks()[i].range.element_bytes);
    }
    memory_.expects_dense = listed > memory_.list_bytes;
    if (!memory_.expects_dense) memory_.copy = {};
    return std::move(memory_);
}

}  // namespace wisp
