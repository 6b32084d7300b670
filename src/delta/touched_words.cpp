#include "delta/touched_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kMostWords = std::uint64_t{1} << 31;  // indices have 4 bytes, and a sign

std::unexpected<Error> not_relayed(const VerifiedDelta& delta, std::string_view why) {
    return fail(ErrorKind::kUnsupported,
                fmt::format("delta {} cannot be decoded without the weights: {}",
                            shown(delta.label()), why));
}

/// All blocks that the deltas touch, without their positions.
Result<std::vector<TouchedBlock>> list_blocks(const DeltaChain& chain, const Schema& schema) {
    std::map<std::pair<std::size_t, std::uint64_t>, TouchedBlock> found;
    const unsigned log2 = chain.log2_block_elements();
    for (std::size_t i = 0; i < chain.size(); ++i) {
        const VerifiedDelta& delta = chain.delta(i);
        if (delta.facts().codec != Codec::kSwift) return not_relayed(delta, "it is not swift");
        for (std::size_t j = 0; j < delta.tensors().size(); ++j) {
            const DeltaTensor& changed = delta.tensors()[j];
            const std::size_t tensor = *schema.find(changed.info.name);
            const std::uint64_t elements = element_count_of(changed.info);
            const unsigned width = traits_of(changed.info.dtype).element_bytes;
            if (elements / (8 / width) >= kMostWords) return not_relayed(delta, "it is too large");
            const TileGrid grid(changed.info, changed.cut);
            for (std::size_t index = 0; index < changed.blocks.size(); ++index) {
                if (changed.blocks[index].empty()) continue;
                const std::uint64_t block = grid[index].first_element >> log2;
                TouchedBlock& touched = found[{tensor, block}];
                const std::uint64_t first = block << log2;
                touched.range = {tensor, first,
                                 std::min(std::uint64_t{1} << log2, elements - first), width};
                touched.parts.push_back({i, j, index, {}, {}});
            }
        }
    }
    std::vector<TouchedBlock> blocks;
    blocks.reserve(found.size());
    for (auto& [where, block] : found) blocks.push_back(std::move(block));
    return blocks;
}

}  // namespace

Result<TouchedWords> TouchedWords::of(const DeltaChain& chain, const Schema& schema,
                                      unsigned threads) {
    TouchedWords found;
    WISP_ASSIGN(found.blocks_, list_blocks(chain, schema));
    using Nothing = std::monostate;
    WISP_TRY(ordered_parallel<Nothing>(
        found.blocks_.size(), thread_count(threads),
        [&](std::uint64_t i, unsigned) -> Result<Nothing> {
            WISP_TRY(read_positions(found.blocks_[static_cast<std::size_t>(i)], chain, schema));
            return Nothing();
        },
        [](std::uint64_t, Nothing) -> Result<void> { return {}; }));
    for (std::size_t i = 0; i < found.blocks_.size(); ++i) {
        const TouchedBlock& block = found.blocks_[i];
        if (found.tensors_.empty() || found.tensors_.back().tensor != block.range.tensor) {
            found.tensors_.push_back({block.range.tensor, 0});
            found.first_block_.push_back(i);
        }
        found.tensors_.back().words += block.word_count;
    }
    found.first_block_.push_back(found.blocks_.size());
    found.words_at_.resize(found.blocks_.size());
    for (std::size_t t = 0; t < found.tensors_.size(); ++t) {
        std::size_t at = found.room_bytes_ + index_bytes_of(found.tensors_[t].words);
        for (std::size_t i = found.first_block_[t]; i < found.first_block_[t + 1]; ++i) {
            found.words_at_[i] = at;
            at += found.blocks_[i].word_count * 8;
        }
        found.room_bytes_ = at;
    }
    return found;
}

void TouchedWords::write_indices(std::span<std::byte> room) const {
    std::byte* tensor = room.data();
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        std::byte* to = tensor;
        for (std::size_t i = first_block_[t]; i < first_block_[t + 1]; ++i) {
            const auto first = static_cast<std::uint32_t>(blocks_[i].range.first_word());
            blocks_[i].each_word([&](std::uint32_t word) {
                store_le<std::uint32_t>(to, first + word);
                to += 4;
            });
        }
        tensor += room_bytes_of(tensors_[t].words);
        // The last word of a tensor may be short.
        if (tensors_[t].words != 0) store_le<std::uint64_t>(tensor - 8, 0);
    }
}

Result<std::vector<MovedBlock>> TouchedWords::run(const DeltaChain& chain,
                                                  std::span<const std::byte> room, ChainSums& sums,
                                                  unsigned threads) {
    std::vector<MovedBlock> moved;
    std::vector<BlockRange> ranges;
    for (const TouchedBlock& block : blocks_) ranges.push_back(block.range);
    std::vector<TouchedWorker> workers(thread_count(threads));
    WISP_TRY(ordered_parallel<RunBlock>(
        blocks_.size(), thread_count(threads),
        [&](std::uint64_t i, unsigned thread) -> Result<RunBlock> {
            return run_touched_block(blocks_[static_cast<std::size_t>(i)], chain,
                                     room.data() + words_at_[static_cast<std::size_t>(i)],
                                     workers[thread]);
        },
        [&](std::uint64_t i, RunBlock done) -> Result<void> {
            sums.add(done.sums);
            const BlockRange& range = ranges[static_cast<std::size_t>(i)];
            if (!done.changes.empty()) {
                moved.push_back({range.tensor, range.first_element, std::move(done.changes)});
            }
            return {};
        }));
    return moved;
}

}  // namespace wisp
