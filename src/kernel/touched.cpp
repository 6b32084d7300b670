#include "kernel/touched.hpp"

#include <array>
#include <cstring>

#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"

namespace wisp {
namespace {

/// What earlier changes, met in ascending order, make of the words of a block.
template <class T>
class OverlaidWords {
  public:
    explicit OverlaidWords(const BlockChanges* over) : over_(over) {}

    std::uint64_t patched(std::uint32_t word, std::uint64_t bits) {
        if (over_ == nullptr) return bits;
        const auto& positions = over_->positions;
        while (next_ < positions.size() && positions[next_] / kPerWord < word) ++next_;
        for (; next_ < positions.size() && positions[next_] / kPerWord == word; ++next_) {
            bits = with_lane<T>(bits, positions[next_],
                                load_element<T>(over_->new_bits.data(), next_));
        }
        return bits;
    }

  private:
    static constexpr std::uint32_t kPerWord = 8 / sizeof(T);
    const BlockChanges* over_;
    std::size_t next_ = 0;
};

template <class T>
TouchedSums touched_sums_of(const OverlaidBlock& old_block, const BlockChanges& changes,
                            const TensorSeed& seed, std::uint64_t first_word) {
    constexpr std::size_t kAhead = 16;
    const auto bytes = old_block.bytes;
    OverlaidWords<T> beneath(old_block.beneath);
    OverlaidWords<T> overlaid(old_block.over);
    TouchedMixer mixer(seed, first_word);
    for (std::size_t i = 0; i < changes.count(); ++i) {
        // The positions are known: what they point at can be on its way before it is needed.
        if (i + kAhead < changes.count()) {
            __builtin_prefetch(bytes.data() + changes.positions[i + kAhead] * sizeof(T));
        }
        const T value = load_element<T>(changes.new_bits.data(), i);
        mixer.add_element(changes.positions[i], value, [&](std::uint32_t word) {
            const std::uint64_t bare = load_word(bytes.data(), std::size_t{word} * 8, bytes.size());
            return overlaid.patched(word, beneath.patched(word, bare));
        });
    }
    return mixer.sums();
}

/// The same where much changed: the new words are made a few at a time, and whole vectors of them
/// mixed.
template <class T>
TouchedSums dense_touched_sums(std::span<const std::byte> old_block, const BlockChanges& changes,
                               const TensorSeed& seed, std::uint64_t first_word) {
    constexpr std::size_t kPart = 1024;  // elements, of whole words
    std::array<std::byte, kPart * sizeof(T)> new_part;
    TouchedSums sums;
    for (std::size_t i = 0; i < changes.count();) {
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
bool are_dense(const BlockChanges& changes) {
    constexpr std::size_t kFew = 4096;
    const std::size_t count = changes.count();
    return count >= kFew && changes.positions.back() - changes.positions.front() < 8 * count;
}

}  // namespace

void TouchedMixer::mix() {
    sums_ += active_kernels().mix_touched(indices_.data(), before_.data(), after_.data(), count_,
                                          seed_, first_word_);
    count_ = 0;
}

TouchedSums touched_sums(const OverlaidBlock& old_block, const BlockChanges& changes,
                         const TensorSeed& seed, std::uint64_t first_word) {
    return with_element_type(changes.element_bytes, [&]<class T>(T) {
        return old_block.over == nullptr && are_dense(changes)
                   ? dense_touched_sums<T>(old_block.bytes, changes, seed, first_word)
                   : touched_sums_of<T>(old_block, changes, seed, first_word);
    });
}

}  // namespace wisp
