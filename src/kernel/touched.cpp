#include "kernel/touched.hpp"

#include <array>
#include <cstring>

#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"

namespace wisp {
namespace {

template <class T>
TouchedSums touched_sums_of(std::size_t first, std::span<const std::byte> old_block,
                            const BlockChanges& changes, const TensorSeed& seed,
                            std::uint64_t first_word) {
    constexpr std::uint32_t kPerWord = 8 / sizeof(T);
    constexpr std::size_t kAhead = 16;
    TouchedSums sums;
    for (std::size_t i = first; i < changes.count();) {
        // The positions are known: what they point at can be on its way before it is needed.
        if (i + kAhead < changes.count()) {
            __builtin_prefetch(old_block.data() + changes.positions[i + kAhead] * sizeof(T));
        }
        const std::uint32_t word = changes.positions[i] / kPerWord;
        const std::uint64_t before =
            load_word(old_block.data(), std::size_t{word} * 8, old_block.size());
        std::uint64_t after = before;
        for (; i < changes.count() && changes.positions[i] / kPerWord == word; ++i) {
            const unsigned shift =
                changes.positions[i] % kPerWord * 8 * static_cast<unsigned>(sizeof(T));
            const std::uint64_t lane = std::uint64_t{static_cast<T>(~T{0})} << shift;
            const std::uint64_t bits = load_element<T>(changes.new_bits.data(), i);
            after = (after & ~lane) | (bits << shift);
        }
        sums.before += mix_word(seed, first_word + word, before);
        sums.after += mix_word(seed, first_word + word, after);
    }
    return sums;
}

/// The same where much changed: the new words are made a few at a time, and whole vectors of them
/// mixed.
template <class T>
TouchedSums dense_touched_sums(std::size_t first, std::span<const std::byte> old_block,
                               const BlockChanges& changes, const TensorSeed& seed,
                               std::uint64_t first_word) {
    constexpr std::size_t kPart = 1024;  // elements, of whole words
    std::array<std::byte, kPart * sizeof(T)> new_part;
    TouchedSums sums;
    for (std::size_t i = first; i < changes.count();) {
        const std::size_t start = changes.positions[i] / kPart * kPart;
        const std::size_t at = start * sizeof(T);
        const std::size_t size = std::min(new_part.size(), old_block.size() - at);
        std::memcpy(new_part.data(), old_block.data() + at, size);
        for (; i < changes.count() && changes.positions[i] < start + kPart; ++i) {
            std::memcpy(new_part.data() + (changes.positions[i] - start) * sizeof(T),
                        changes.new_bits.data() + i * sizeof(T), sizeof(T));
        }
        sums += active_kernels()
                    .compare(old_block.data() + at, new_part.data(), size / sizeof(T), sizeof(T),
                             seed, first_word + at / 8)
                    .touched;
    }
    return sums;
}

/// Whether at least an eighth changed between the first of them and the last.
bool are_dense(std::size_t first, const BlockChanges& changes) {
    constexpr std::size_t kFew = 4096;
    const std::size_t count = changes.count() - first;
    return count >= kFew && changes.positions.back() - changes.positions[first] < 8 * count;
}

}  // namespace

TouchedSums touched_sums(std::span<const std::byte> old_block, const BlockChanges& changes,
                         const TensorSeed& seed, std::uint64_t first_word) {
    return touched_sums_from(0, old_block, changes, seed, first_word);
}

TouchedSums touched_sums_from(std::size_t first, std::span<const std::byte> old_block,
                              const BlockChanges& changes, const TensorSeed& seed,
                              std::uint64_t first_word) {
    return with_element_type(changes.element_bytes, [&]<class T>(T) {
        return are_dense(first, changes)
                   ? dense_touched_sums<T>(first, old_block, changes, seed, first_word)
                   : touched_sums_of<T>(first, old_block, changes, seed, first_word);
    });
}

}  // namespace wisp
