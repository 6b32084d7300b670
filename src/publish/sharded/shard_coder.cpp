#include "publish/sharded/shard_coder.hpp"

#include "base/parallel.hpp"
#include "base/try.hpp"
#include "kernel/scatter.hpp"

namespace wisp {

ShardCoder::ShardCoder(const OwnBlocks& own, Codec codec, unsigned threads,
                       std::filesystem::path file, std::uint64_t buffer_bytes)
    : own_(&own),
      codec_(codec),
      path_(std::move(file)),
      workers_(thread_count(threads)),
      found_(buffer_bytes) {}

ShardCoder::Found ShardCoder::find(const OwnBlock& block, std::span<const std::byte> old_block,
                                   std::span<const std::byte> new_block, unsigned thread) {
    WriteWorker& worker = workers_[thread];
    Found found;
    const std::size_t width = block.range.element_bytes;
    worker.detector.find_all(
        old_block,
        [&](std::size_t first, std::size_t count) {
            return new_block.subspan(first * width, count * width);
        },
        block.range, own_->seed_of(block), found.old_state, worker.found.changes);
    found.changes = worker.found.changes;  // in as much memory as they take, and no more
    return found;
}

Result<void> ShardCoder::add(const SpanViews& views, const std::vector<Bytes>& kept,
                             ShardManifest& manifest) {
    const std::size_t first = next_block_;
    const auto& blocks = own_->blocks();
    std::size_t end = first;
    while (end < blocks.size() && blocks[end].span < next_span_ + views.size()) ++end;
    WISP_TRY(ordered_parallel<Found>(
        end - first, static_cast<unsigned>(workers_.size()),
        [&](std::uint64_t index, unsigned thread) -> Result<Found> {
            const OwnBlock& block = blocks[first + index];
            return find(block, block.of(kept[block.span]), block.of(views[block.span - next_span_]),
                        thread);
        },
        [&](std::uint64_t index, Found found) -> Result<void> {
            const BlockRange& range = blocks[first + index].range;
            manifest.state += found.old_state;
            manifest.blocks.push_back({0, found.changes.count()});
            if (found_.has_room(found.changes)) {
                found_.keep(range.tensor, range.first_element, std::move(found.changes));
                return {};
            }
            if (found_.complete()) WISP_TRY(code_blocks(found_.give_up(), kept, manifest));
            if (found.changes.empty()) return {};
            const MovedBlock alone{range.tensor, range.first_element, std::move(found.changes)};
            return code_blocks({&alone, 1}, kept, manifest);
        }));
    next_block_ = end;
    next_span_ += views.size();
    return {};
}

Result<void> ShardCoder::create_file() {
    if (file_) return {};
    WISP_ASSIGN(PendingFile file, PendingFile::create(path_));
    file_.emplace(std::move(file));
    return {};
}

Result<void> ShardCoder::code_blocks(std::span<const MovedBlock> found,
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
            return encode_changes(codec_, own_->tensor_of(block), block.range, old_block,
                                  with_old_bits(found[index].changes, old_block),
                                  own_->seed_of(block), workers_[thread]);
        },
        [&](std::uint64_t index, WrittenBlock block) -> Result<void> {
            manifest.touched_before += block.touched.before;
            manifest.touched_after += block.touched.after;
            manifest.blocks[places[index]].bytes = block.encoded.coded.size();
            return file_->append(block.encoded.coded);
        });
}

Result<void> ShardCoder::code(const std::vector<Bytes>& kept, ShardManifest& manifest) {
    if (done_) return {};
    WISP_TRY(create_file());
    if (found_.complete()) WISP_TRY(code_blocks(found_.blocks(), kept, manifest));
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
        scatter_new_bits((next++)->changes, kept[block.span].data() + block.offset);
    }
    return {};
}

}  // namespace wisp
