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

/// The coder under way: both states, and where the next word goes.
struct RansStates {
    std::uint64_t position = kRansLow;
    std::uint64_t value = kRansLow;
    std::uint32_t* next = nullptr;
};

/// Appends words in reading order, the reverse of how they came.
void append_words(std::span<const std::uint32_t> words, Bytes& out);

class RansWriter {
  public:
    /// A slice of [0, 2^kPositionBits).
    void put_position(std::uint32_t start, std::uint32_t frequency) {
        symbols_.push_back(start | std::uint64_t{frequency} << kFrequencyShift | kPosition);
    }
    /// A slice of [0, 2^bits), bits at most 16 and the frequency below 2^16.
    void put_value(std::uint32_t start, std::uint32_t frequency, unsigned bits,
                   Lane lane = Lane::kValue) {
        symbols_.push_back(start | bits << 16 | std::uint64_t{frequency} << kFrequencyShift |
                           (lane == Lane::kPosition ? kOtherLane : 0));
    }
    void put_bits(std::uint64_t value, unsigned bits, Lane lane = Lane::kValue);
    /// Codes what was put and appends the stream.
    void finish(Bytes& out) {
        finish(out, 0, [](RansStates&) {});
    }
    /// Then calls code_first(states), which codes so many symbols that are read before those.
    template <class CodeFirst>
    void finish(Bytes& out, std::size_t symbols, CodeFirst&& code_first) {
        RansStates states = code(symbols);
        code_first(states);
        append(states, out);
    }
    /// Forgets what was put.
    void clear() { symbols_.clear(); }

  private:
    /// Leaves room for so many words more.
    RansStates code(std::size_t more);
    void append(const RansStates& states, Bytes& out) const;

    // A symbol: its start, and of a value its bits behind that; its frequency; what it is.
    static constexpr unsigned kFrequencyShift = kPositionBits;
    static constexpr std::uint64_t kPosition = std::uint64_t{1} << 60;
    static constexpr std::uint64_t kOtherLane = kPosition << 1;  // a value, of the position state
    std::vector<std::uint64_t> symbols_;
    std::vector<std::uint32_t> words_;
};

}  // namespace wisp
