// The digest of the words a change set touches, before and after: how a running digest moves on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernel/elements.hpp"
#include "kernel/mix.hpp"
#include "kernel/overlaid_block.hpp"
#include "wisp/state.hpp"

namespace wisp {

struct TouchedSums {
    StateDigest before;
    StateDigest after;

    TouchedSums& operator+=(const TouchedSums& other) {
        before += other.before;
        after += other.after;
        return *this;
    }
};

/// Adds up words as they are touched, each once; some are collected, and mixed by whole vectors.
class TouchedMixer {
  public:
    /// Words are counted from `first_word` of their tensor on.
    TouchedMixer(const TensorSeed& seed, std::uint64_t first_word)
        : seed_(seed), first_word_(first_word) {}

    void add(std::uint32_t word, std::uint64_t before, std::uint64_t after) {
        if (count_ == kRoom) mix();
        indices_[count_] = word;
        before_[count_] = before;
        after_[count_++] = after;
    }
    /// One element of a word, by ascending positions. before(word) is asked for each word once.
    template <class T, class Before>
    void add_element(std::uint32_t position, T value, Before&& before) {
        const auto word = static_cast<std::uint32_t>(position / (8 / sizeof(T)));
        if (word == last_word_) [[unlikely]] {
            after_[count_ - 1] = with_lane<T>(after_[count_ - 1], position, value);
            return;
        }
        last_word_ = word;
        const std::uint64_t bits = before(word);
        add(word, bits, with_lane<T>(bits, position, value));
    }
    TouchedSums sums() {
        mix();
        return sums_;
    }

  private:
    static constexpr std::size_t kRoom = 256;
    void mix();
    const TensorSeed seed_;
    const std::uint64_t first_word_;
    TouchedSums sums_;
    std::size_t count_ = 0;
    std::uint32_t last_word_ = ~0U;  // of add_element()
    std::array<std::uint32_t, kRoom> indices_;
    std::array<std::uint64_t, kRoom> before_;
    std::array<std::uint64_t, kRoom> after_;
};

/// `old_block` is the block before the change; `first_word` the index, inside the tensor,
/// of its first word. Each touched word counts once, however many of its elements changed.
TouchedSums touched_sums(const OverlaidBlock& old_block, const BlockChanges& changes,
                         const TensorSeed& seed, std::uint64_t first_word);

}  // namespace wisp
