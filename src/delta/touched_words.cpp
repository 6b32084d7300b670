#include "delta/touched_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <variant>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "kernel/elements.hpp"
#include "kernel/mix.hpp"

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

void append_words(const std::vector<std::uint32_t>& positions, std::uint32_t per_word,
                  std::vector<std::uint32_t>& words) {
    const std::size_t before = words.size();
    for (const std::uint32_t position : positions) {
        const std::uint32_t word = position / per_word;
        if (words.size() == before || words.back() != word) words.push_back(word);
    }
}

Result<void> read_positions(TouchedBlock& block, const DeltaChain& chain, const Schema& schema) {
    const TensorInfo& info = schema.tensors()[block.range.tensor];
    for (TouchedBlock::Part& part : block.parts) {
        const DeltaTensor& changed = chain.delta(part.delta).tensors()[part.delta_tensor];
        const Tile tile = TileGrid(changed.info, changed.cut)[part.index];
        auto read = part.decoder.positions(changed.blocks[part.index],
                                           static_cast<std::size_t>(tile.element_count()),
                                           traits_of(info.dtype), part.positions);
        if (!read) {
            Error error = std::move(read).error();
            error.text = fmt::format("delta {}: tensor {}, elements from {}: {}; fetch it again",
                                     shown(chain.delta(part.delta).label()), shown(info.name),
                                     tile.first_element, error.text);
            return std::unexpected(std::move(error));
        }
        tile.spread(part.positions, block.range.first_element);
        append_words(part.positions, 8 / block.range.element_bytes, block.words);
    }
    if (block.parts.size() > 1) {
        std::ranges::sort(block.words);
        block.words.erase(std::ranges::unique(block.words).begin(), block.words.end());
    }
    return {};
}

/// The words of one block on their way through the deltas.
template <class T>
class WordRun {
  public:
    WordRun(const TouchedBlock& block, std::vector<std::uint64_t>& now)
        : block_(block), now_(now) {}

    /// Lays the old bits of a part's positions side by side.
    void take(const TouchedBlock::Part& part, std::vector<std::byte>& bits) const {
        bits.resize(part.positions.size() * sizeof(T));
        std::size_t at = 0;
        for (std::size_t i = 0; i < part.positions.size(); ++i) {
            at = place_of(part.positions[i] / kPerWord, at);
            store_le<T>(bits.data() + i * sizeof(T),
                        static_cast<T>(now_[at] >> shift_of(part.positions[i])));
        }
    }

    /// Puts the new bits in place; how many elements that changes.
    std::uint64_t put(const TouchedBlock::Part& part, const std::vector<std::byte>& bits,
                      const TensorSeed& seed, TouchedSums& sums) {
        std::uint64_t changed = 0;
        std::size_t at = 0;
        for (std::size_t i = 0; i < part.positions.size();) {
            const std::uint32_t word = part.positions[i] / kPerWord;
            at = place_of(word, at);
            const std::uint64_t before = now_[at];
            std::uint64_t after = before;
            for (; i < part.positions.size() && part.positions[i] / kPerWord == word; ++i) {
                const unsigned shift = shift_of(part.positions[i]);
                const T value = load_element<T>(bits.data(), i);
                changed += static_cast<T>(after >> shift) != value ? 1 : 0;
                after = (after & ~(kLane << shift)) | (std::uint64_t{value} << shift);
            }
            // Of a dense block most words are as they were, and are not touched.
            if (after == before) continue;
            const std::uint64_t index = block_.range.first_word() + word;
            sums.before += mix_word(seed, index, before);
            sums.after += mix_word(seed, index, after);
            now_[at] = after;
        }
        return changed;
    }

    /// What differs from the words as they were.
    BlockChanges changes(const std::vector<std::uint64_t>& old_words) const {
        std::size_t most = 0;
        for (const TouchedBlock::Part& part : block_.parts) most += part.positions.size();
        BlockChanges found;
        found.element_bytes = sizeof(T);
        resize(found, most);
        std::size_t count = 0;
        for (std::size_t at = 0; at < now_.size(); ++at) {
            std::uint64_t differing = old_words[at] ^ now_[at];
            while (differing != 0) {
                constexpr unsigned kBits = 8 * sizeof(T);
                const unsigned lane = static_cast<unsigned>(std::countr_zero(differing)) / kBits;
                const unsigned shift = lane * kBits;
                differing &= ~(kLane << shift);
                found.positions[count] = block_.words[at] * kPerWord + lane;
                store_le<T>(found.old_bits.data() + count * sizeof(T),
                            static_cast<T>(old_words[at] >> shift));
                store_le<T>(found.new_bits.data() + count * sizeof(T),
                            static_cast<T>(now_[at] >> shift));
                ++count;
            }
        }
        resize(found, count);
        return found;
    }

  private:
    static constexpr std::uint32_t kPerWord = 8 / sizeof(T);
    static constexpr std::uint64_t kLane = static_cast<T>(~T{0});

    static unsigned shift_of(std::uint32_t position) {
        return position % kPerWord * 8 * static_cast<unsigned>(sizeof(T));
    }
    /// Words ascend, and so do those that are looked for.
    std::size_t place_of(std::uint32_t word, std::size_t from) const {
        while (block_.words[from] != word) ++from;
        return from;
    }
    static void resize(BlockChanges& changes, std::size_t count) {
        changes.positions.resize(count);
        changes.old_bits.resize(count * sizeof(T));
        changes.new_bits.resize(count * sizeof(T));
    }

    const TouchedBlock& block_;
    std::vector<std::uint64_t>& now_;
};

struct RunBlock {
    ChainSums sums;
    BlockChanges changes;
};

/// A tile found the words that it was made from, and leads to those that it should.
Result<void> prove_tile(const VerifiedDelta& delta, const TouchedBlock::Part& part,
                        const TouchedSums& touched) {
    const DeltaTensor& tensor = delta.tensors()[part.delta_tensor];
    if (tensor.proofs.empty()) return {};
    const TileProof& proof = tensor.proofs[part.index];
    const auto where = [&] {
        return fmt::format("tile {} of tensor {} in delta {} (step {})", part.index,
                           shown(tensor.info.name), shown(delta.label()), delta.facts().step);
    };
    if (touched.before.a != proof.before) {
        return fail(ErrorKind::kWrongBase,
                    where() + " does not find the values that it was made from");
    }
    if (touched.after.a != proof.after) {
        return fail(ErrorKind::kCorrupt, where() + " leads to other values than it says");
    }
    return {};
}

template <class T>
Result<RunBlock> run_block(TouchedBlock& block, const DeltaChain& chain, const std::byte* room) {
    std::vector<std::uint64_t> old_words(block.words.size());
    for (std::size_t i = 0; i < old_words.size(); ++i) {
        old_words[i] = load_le<std::uint64_t>(room + i * 8);
    }
    std::vector<std::uint64_t> now = old_words;
    WordRun<T> words(block, now);
    RunBlock done;
    done.sums.touched.resize(chain.size());
    std::vector<std::byte> old_bits;
    std::vector<std::byte> new_bits;
    for (TouchedBlock::Part& part : block.parts) {
        words.take(part, old_bits);
        new_bits.resize(old_bits.size());
        WISP_TRY(part.decoder.values(old_bits, new_bits));
        TouchedSums touched;
        done.sums.decoded[{part.delta, part.delta_tensor}] +=
            words.put(part, new_bits, chain.seed(block.range.tensor), touched);
        WISP_TRY(prove_tile(chain.delta(part.delta), part, touched));
        done.sums.touched[part.delta] += touched;
    }
    done.changes = words.changes(old_words);
    done.sums.changed_elements = done.changes.count();
    block = {};  // what it held is not needed any more
    return done;
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
        found.tensors_.back().words += block.words.size();
    }
    found.first_block_.push_back(found.blocks_.size());
    found.words_at_.resize(found.blocks_.size());
    for (std::size_t t = 0; t < found.tensors_.size(); ++t) {
        std::size_t at = found.room_bytes_ + index_bytes_of(found.tensors_[t].words);
        for (std::size_t i = found.first_block_[t]; i < found.first_block_[t + 1]; ++i) {
            found.words_at_[i] = at;
            at += found.blocks_[i].words.size() * 8;
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
            for (const std::uint32_t word : blocks_[i].words) {
                store_le<std::uint32_t>(to, first + word);
                to += 4;
            }
        }
        tensor += room_bytes_of(tensors_[t].words);
    }
}

Result<std::vector<MovedBlock>> TouchedWords::run(const DeltaChain& chain,
                                                  std::span<const std::byte> room, ChainSums& sums,
                                                  unsigned threads) {
    std::vector<MovedBlock> moved;
    std::vector<BlockRange> ranges;
    for (const TouchedBlock& block : blocks_) ranges.push_back(block.range);
    WISP_TRY(ordered_parallel<RunBlock>(
        blocks_.size(), thread_count(threads),
        [&](std::uint64_t i, unsigned) -> Result<RunBlock> {
            TouchedBlock& block = blocks_[static_cast<std::size_t>(i)];
            const std::byte* words = room.data() + words_at_[static_cast<std::size_t>(i)];
            return with_element_type(block.range.element_bytes,
                                     [&]<class T>(T) { return run_block<T>(block, chain, words); });
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
