// What kernels are given and give back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/element_class.hpp"
#include "kernel/mix.hpp"
#include "kernel/touched.hpp"

namespace wisp {

/// Whether a scan also adds the mix of every word of the old block to a digest.
struct ScanDigest {
    const TensorSeed* seed = nullptr;  // null: no
    std::uint64_t first_word = 0;
    StateDigest* digest = nullptr;
};

/// An element that changed, as scan_weighted() finds it.
struct WeightedChange {
    std::uint64_t start;     // the weight of all elements before it
    std::uint32_t position;  // of the element
    std::uint32_t exponent;  // of what it was

    friend bool operator==(const WeightedChange&, const WeightedChange&) = default;
};

struct WeightedScan {
    ExponentField field;
    ClassWindow window;
    WeightTable weights;
    ScanDigest digest;
    void (*take)(void* taker, std::span<const WeightedChange> changes);
    void* taker;
};

/// How two blocks differ, word by word for the digests.
struct Comparison {
    std::size_t changed = 0;
    TouchedSums touched;
    StateDigest old_state;  // of the whole old block
};

/// Where changes are listed.
struct ChangeRoom {
    std::uint32_t* positions;
    std::byte* old_bits;
    std::byte* new_bits;

    ChangeRoom behind(std::size_t found, unsigned element_bytes) const {
        return {positions + found, old_bits + found * element_bytes,
                new_bits + found * element_bytes};
    }
};

/// A stream of tokens that is being read: doc/format.md section 11. States and words are those of
/// rANS; a slot tells its token, what to add to the state, and its frequency less one, from the
/// lowest byte on in 8, 12 and 12 bits.
inline constexpr std::size_t kTokenStates = 32;
inline constexpr unsigned kTokenBits = 12;
inline constexpr std::uint32_t kTokenStateLow = 1U << 16;

struct TokenSource {
    std::array<std::uint32_t, kTokenStates> states;
    const std::byte* next;       // 16 bits a word
    const std::uint32_t* slots;  // 2^kTokenBits of each class
};

/// The same being written, from its end to its beginning: so are the words.
struct TokenSink {
    std::array<std::uint32_t, kTokenStates> states;
    std::uint16_t* next;
    const std::uint32_t* slices;  // 256 of each class: its start, and the frequency 12 bits above
};

}  // namespace wisp
