// rANS with 64-bit states and 32-bit words: doc/format.md section 8.
//
// A symbol is a slice [start, start + frequency) of [0, 2^bits). Two states share one stream of
// words, so that neither waits for the other: one for positions and one for values, or in a swift
// block one for every other change. The coder works
// backwards: the writer collects symbols in reading order and codes them when the block ends; a
// model may therefore adapt as it reads. A stream that was read to its end leaves both states at
// kRansLow and no word behind: anything else is corruption.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"

namespace wisp {

inline constexpr unsigned kPositionBits = 30;
inline constexpr std::uint64_t kRansLow = std::uint64_t{1} << 31;

enum class Lane : std::uint8_t { kPosition, kValue };

struct RansSymbol {
    std::uint32_t start;
    std::uint32_t frequency;
    unsigned bits;
};

/// One step of the coder. A word that overflows goes to `next`, which then moves on; whether one
/// does is as good as random, so it is not branched on. There must be room at `next`.
inline void rans_put(std::uint64_t& state, std::uint32_t*& next, const RansSymbol& symbol) {
    const std::uint64_t limit = ((kRansLow >> symbol.bits) << 32) * symbol.frequency;
    const unsigned overflows = state >= limit ? 1 : 0;
    *next = static_cast<std::uint32_t>(state);
    next += overflows;
    state >>= 32 * overflows;
    if (symbol.frequency == 1) {  // plain bits: spares the division
        state = (state << symbol.bits) + symbol.start;
        return;
    }
    state = ((state / symbol.frequency) << symbol.bits) + state % symbol.frequency + symbol.start;
}

/// Appends words in reading order, the reverse of how they came.
void append_words(std::span<const std::uint32_t> words, Bytes& out);

class RansWriter {
  public:
    /// A slice of [0, 2^kPositionBits).
    void put_position(std::uint32_t start, std::uint32_t frequency) {
        positions_.push_back({start, frequency});
        order_.push_back(kPositionMark);
    }
    /// A slice of [0, 2^bits), bits at most 16 and the frequency below 2^16.
    void put_value(std::uint32_t start, std::uint32_t frequency, unsigned bits,
                   Lane lane = Lane::kValue) {
        values_.push_back(start | frequency << 16);
        const unsigned mark = lane == Lane::kPosition ? bits | kOtherLane : bits;
        order_.push_back(static_cast<std::uint8_t>(mark));
    }
    void put_bits(std::uint64_t value, unsigned bits, Lane lane = Lane::kValue);
    /// Codes what was put and appends the stream.
    void finish(Bytes& out);
    /// Forgets what was put.
    void clear();

  private:
    // Apart and packed: a dense block of far steps has fifteen million of them.
    struct PositionSymbol {
        std::uint32_t start;
        std::uint32_t frequency;
    };
    static constexpr std::uint8_t kPositionMark = 255;
    static constexpr std::uint8_t kOtherLane = 64;  // a symbol of few bits, of the position state
    std::vector<std::uint8_t> order_;               // the bits of each symbol in turn, or a mark
    std::vector<PositionSymbol> positions_;
    std::vector<std::uint32_t> values_;
    std::vector<std::uint32_t> words_;
};

}  // namespace wisp
