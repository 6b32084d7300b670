#include "delta/touched_block.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/text.hpp"
#include "base/try.hpp"
#include "kernel/elements.hpp"
#include "kernel/mix.hpp"

namespace wisp {
namespace {

/// How many words there are of ascending positions.
std::size_t count_words(const TouchedBlock& block) {
    const std::vector<std::uint32_t>& positions = block.parts[0].positions;
    const unsigned log2_per_word = block.log2_per_word();
    std::size_t count = positions.empty() ? 0 : 1;
    for (std::size_t i = 1; i < positions.size(); ++i) {
        count += positions[i] >> log2_per_word != positions[i - 1] >> log2_per_word ? 1 : 0;
    }
    return count;
}

/// Words of several parts by way of a bit for each: sorting them takes longer than all the rest.
std::vector<std::uint32_t> words_of_all(const TouchedBlock& block) {
    const std::uint32_t per_word = 8 / block.range.element_bytes;
    std::vector<std::uint64_t> bits(
        static_cast<std::size_t>(block.range.element_count) / per_word / 64 + 1);
    std::size_t most = 0;
    for (const TouchedBlock::Part& part : block.parts) {
        for (const std::uint32_t position : part.positions) {
            const std::uint32_t word = position / per_word;
            bits[word / 64] |= std::uint64_t{1} << word % 64;
        }
        most += part.positions.size();
    }
    std::vector<std::uint32_t> words;
    words.reserve(most);
    for (std::size_t i = 0; i < bits.size(); ++i) {
        for (std::uint64_t left = bits[i]; left != 0; left &= left - 1) {
            words.push_back(static_cast<std::uint32_t>(i * 64) +
                            static_cast<std::uint32_t>(std::countr_zero(left)));
        }
    }
    return words;
}

void resize(BlockChanges& changes, std::size_t count) {
    changes.positions.resize(count);
    changes.old_bits.resize(count * changes.element_bytes);
    changes.new_bits.resize(count * changes.element_bytes);
}

/// Elements that may be as they were, put into their words by ascending positions; how many were
/// not. before(word) is asked for each word once, and after(word, bits) told of those that change.
template <class T, class Before, class After>
std::uint64_t put_elements(std::span<const std::uint32_t> positions, const std::byte* elements,
                           const TensorSeed& seed, std::uint64_t first_word, TouchedSums& sums,
                           Before&& before, After&& after) {
    constexpr std::uint32_t kPerWord = 8 / sizeof(T);
    std::uint64_t changed = 0;
    StateDigest all_before;  // in registers, where sums of somebody else are not
    StateDigest all_after;
    for (std::size_t i = 0; i < positions.size();) {
        const std::uint32_t word = positions[i] / kPerWord;
        const std::uint64_t old_bits = before(word);
        std::uint64_t new_bits = old_bits;
        for (; i < positions.size() && positions[i] / kPerWord == word; ++i) {
            const T value = load_element<T>(elements, i);
            changed += static_cast<T>(old_bits >> lane_shift<T>(positions[i])) != value ? 1 : 0;
            new_bits = with_lane<T>(new_bits, positions[i], value);
        }
        // Of a dense block most words are as they were, and are not touched.
        if (new_bits == old_bits) continue;
        all_before += mix_word(seed, first_word + word, old_bits);
        all_after += mix_word(seed, first_word + word, new_bits);
        after(word, new_bits);
    }
    sums = {all_before, all_after};
    return changed;
}

/// The words of a block on their way through several deltas. They lie where the block has them, so
/// that each is found without a search, among room for all that it has.
template <class T>
class WordRun {
  public:
    WordRun(const TouchedBlock& block, const std::byte* old_words, std::vector<std::uint64_t>& room)
        : block_(block), old_words_(old_words), now_(room) {
        const std::size_t all = static_cast<std::size_t>(block.range.element_count) / kPerWord + 1;
        if (now_.size() < all) now_.resize(all);
        for (std::size_t i = 0; i < block.words.size(); ++i) now_[block.words[i]] = old_word(i);
    }

    /// Lays the old bits of a part's positions side by side.
    void take(const TouchedBlock::Part& part, std::vector<std::byte>& bits) const {
        bits.resize(part.positions.size() * sizeof(T));
        for (std::size_t i = 0; i < part.positions.size(); ++i) {
            const std::uint32_t position = part.positions[i];
            store_le<T>(bits.data() + i * sizeof(T),
                        static_cast<T>(now_[position / kPerWord] >> lane_shift<T>(position)));
        }
    }

    /// Puts the new bits in place; how many elements that changes.
    std::uint64_t put(const TouchedBlock::Part& part, const std::vector<std::byte>& bits,
                      const TensorSeed& seed, TouchedSums& sums) {
        return put_elements<T>(
            part.positions, bits.data(), seed, block_.range.first_word(), sums,
            [&](std::uint32_t word) { return now_[word]; },
            [&](std::uint32_t word, std::uint64_t bits_after) { now_[word] = bits_after; });
    }

    /// What differs from the words as they were.
    BlockChanges changes() const {
        std::size_t most = 0;
        for (const TouchedBlock::Part& part : block_.parts) most += part.positions.size();
        BlockChanges found;
        found.element_bytes = sizeof(T);
        resize(found, most);
        std::size_t count = 0;
        for (std::size_t i = 0; i < block_.words.size(); ++i) {
            const std::uint64_t before = old_word(i);
            const std::uint64_t after = now_[block_.words[i]];
            std::uint64_t differing = before ^ after;
            while (differing != 0) {
                constexpr unsigned kBits = 8 * sizeof(T);
                const unsigned lane = static_cast<unsigned>(std::countr_zero(differing)) / kBits;
                const unsigned shift = lane * kBits;
                differing &= ~(kLane << shift);
                found.positions[count] = block_.words[i] * kPerWord + lane;
                store_le<T>(found.old_bits.data() + count * sizeof(T),
                            static_cast<T>(before >> shift));
                store_le<T>(found.new_bits.data() + count * sizeof(T),
                            static_cast<T>(after >> shift));
                ++count;
            }
        }
        resize(found, count);
        return found;
    }

  private:
    static constexpr std::uint32_t kPerWord = 8 / sizeof(T);
    static constexpr std::uint64_t kLane = static_cast<T>(~T{0});

    std::uint64_t old_word(std::size_t i) const {
        return load_le<std::uint64_t>(old_words_ + i * 8);
    }

    const TouchedBlock& block_;
    const std::byte* old_words_;
    std::vector<std::uint64_t>& now_;
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

/// A block that one delta alone changes: its positions are the changes, and each word is met once.
template <class T>
class SinglePart {
  public:
    SinglePart(TouchedBlock::Part& part, const std::byte* words) : part_(part), words_(words) {}

    Result<void> decode(SwiftDecoder& decoder) {
        const std::size_t count = part_.positions.size();
        changes_.element_bytes = sizeof(T);
        changes_.old_bits.resize(count * sizeof(T));
        changes_.new_bits.resize(count * sizeof(T));
        std::size_t at = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t position = part_.positions[i];
            // Without a jump, which could not be foretold.
            at += i != 0 && position / kPerWord != part_.positions[i - 1] / kPerWord ? 1 : 0;
            std::memcpy(changes_.old_bits.data() + i * sizeof(T),
                        words_ + at * 8 + position % kPerWord * sizeof(T), sizeof(T));
        }
        return decoder.values(part_.reading, changes_.old_bits, changes_.new_bits);
    }

    /// What it adds to the digests.
    TouchedSums sums(const TensorSeed& seed, std::uint64_t first_word) {
        if (!part_.reading.dense_block.empty()) return dense_sums(seed, first_word);
        TouchedMixer mixer(seed, first_word);
        const std::byte* next = words_;
        for (std::size_t i = 0; i < part_.positions.size(); ++i) {
            const T value = load_element<T>(changes_.new_bits.data(), i);
            mixer.add_element(part_.positions[i], value, [&](std::uint32_t) {
                return load_le<std::uint64_t>(std::exchange(next, next + 8));
            });
        }
        all_differ_ = true;  // no step is zero
        return mixer.sums();
    }

    /// What differs; after this it holds nothing.
    BlockChanges changes() {
        changes_.positions = std::move(part_.positions);
        if (all_differ_) return std::move(changes_);
        std::size_t kept = 0;
        for (std::size_t i = 0; i < changes_.count(); ++i) {
            const T before = load_element<T>(changes_.old_bits.data(), i);
            const T after = load_element<T>(changes_.new_bits.data(), i);
            changes_.positions[kept] = changes_.positions[i];
            store_le<T>(changes_.old_bits.data() + kept * sizeof(T), before);
            store_le<T>(changes_.new_bits.data() + kept * sizeof(T), after);
            kept += before != after ? 1 : 0;
        }
        resize(changes_, kept);
        return std::move(changes_);
    }

  private:
    static constexpr std::uint32_t kPerWord = 8 / sizeof(T);

    TouchedSums dense_sums(const TensorSeed& seed, std::uint64_t first_word) {
        TouchedSums sums;
        const std::byte* next = words_;
        const std::uint64_t changed = put_elements<T>(
            part_.positions, changes_.new_bits.data(), seed, first_word, sums,
            [&](std::uint32_t) { return load_le<std::uint64_t>(std::exchange(next, next + 8)); },
            [](std::uint32_t, std::uint64_t) {});
        all_differ_ = changed == part_.positions.size();
        return sums;
    }

    TouchedBlock::Part& part_;
    const std::byte* words_;
    BlockChanges changes_;
    bool all_differ_ = false;
};

template <class T>
Result<RunBlock> run_single(TouchedBlock& block, const DeltaChain& chain,
                            const std::byte* old_words, SwiftDecoder& decoder) {
    TouchedBlock::Part& part = block.parts[0];
    SinglePart<T> single(part, old_words);
    WISP_TRY(single.decode(decoder));
    const TouchedSums touched =
        single.sums(chain.seed(block.range.tensor), block.range.first_word());
    WISP_TRY(prove_tile(chain.delta(part.delta), part, touched));
    RunBlock done;
    done.sums.touched.resize(chain.size());
    done.sums.touched[part.delta] = touched;
    done.changes = single.changes();
    done.sums.changed_elements = done.changes.count();
    done.sums.decoded[{part.delta, part.delta_tensor}] = done.changes.count();
    block = {};  // what it held is not needed any more
    return done;
}

template <class T>
Result<RunBlock> run_several(TouchedBlock& block, const DeltaChain& chain,
                             const std::byte* old_words, TouchedWorker& worker) {
    WordRun<T> words(block, old_words, worker.words);
    RunBlock done;
    done.sums.touched.resize(chain.size());
    for (TouchedBlock::Part& part : block.parts) {
        words.take(part, worker.old_bits);
        worker.new_bits.resize(worker.old_bits.size());
        WISP_TRY(worker.decoder.values(part.reading, worker.old_bits, worker.new_bits));
        TouchedSums touched;
        done.sums.decoded[{part.delta, part.delta_tensor}] +=
            words.put(part, worker.new_bits, chain.seed(block.range.tensor), touched);
        WISP_TRY(prove_tile(chain.delta(part.delta), part, touched));
        done.sums.touched[part.delta] += touched;
    }
    done.changes = words.changes();
    done.sums.changed_elements = done.changes.count();
    block = {};  // what it held is not needed any more
    return done;
}

}  // namespace

Result<void> read_positions(TouchedBlock& block, const DeltaChain& chain, const Schema& schema) {
    const TensorInfo& info = schema.tensors()[block.range.tensor];
    for (TouchedBlock::Part& part : block.parts) {
        const DeltaTensor& changed = chain.delta(part.delta).tensors()[part.delta_tensor];
        const Tile tile = TileGrid(changed.info, changed.cut)[part.index];
        auto read = read_swift_positions(changed.blocks[part.index],
                                         static_cast<std::size_t>(tile.element_count()),
                                         traits_of(info.dtype), part.positions);
        if (!read) {
            Error error = std::move(read).error();
            error.text = fmt::format("delta {}: tensor {}, elements from {}: {}; fetch it again",
                                     shown(chain.delta(part.delta).label()), shown(info.name),
                                     tile.first_element, error.text);
            return std::unexpected(std::move(error));
        }
        part.reading = *read;
        tile.spread(part.positions, block.range.first_element);
    }
    if (block.parts.size() != 1) block.words = words_of_all(block);
    block.word_count = block.parts.size() == 1 ? count_words(block) : block.words.size();
    return {};
}

Result<RunBlock> run_touched_block(TouchedBlock& block, const DeltaChain& chain,
                                   const std::byte* old_words, TouchedWorker& worker) {
    return with_element_type(block.range.element_bytes, [&]<class T>(T) {
        return block.parts.size() == 1 ? run_single<T>(block, chain, old_words, worker.decoder)
                                       : run_several<T>(block, chain, old_words, worker);
    });
}

}  // namespace wisp
