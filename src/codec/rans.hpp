// rANS with a 64-bit state and 32-bit words: doc/format.md section 8.
//
// A symbol is a slice [start, start + frequency) of [0, 2^bits). The coder works backwards, so the
// writer collects symbols in reading order and codes them when the block ends; a model may
// therefore adapt as it reads. A stream that was read to its end leaves the state at kRansLow and
// no word behind: anything else is corruption.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"

namespace wisp {

inline constexpr std::uint64_t kRansLow = std::uint64_t{1} << 31;

struct RansSymbol {
    std::uint32_t start;
    std::uint32_t frequency;
    std::uint32_t bits;
};

/// One step of the coder; words that overflow are appended, last first.
inline void rans_put(std::uint64_t& state, std::vector<std::uint32_t>& words,
                     const RansSymbol& symbol) {
    const std::uint64_t limit = ((kRansLow >> symbol.bits) << 32) * symbol.frequency;
    if (state >= limit) {
        words.push_back(static_cast<std::uint32_t>(state));
        state >>= 32;
    }
    state = ((state / symbol.frequency) << symbol.bits) + state % symbol.frequency + symbol.start;
}

class RansWriter {
  public:
    void put(std::uint32_t start, std::uint32_t frequency, std::uint32_t bits) {
        symbols_.push_back({start, frequency, bits});
    }
    void put_bits(std::uint64_t value, unsigned bits);
    /// Codes what was put and appends the stream.
    void finish(Bytes& out);

  private:
    std::vector<RansSymbol> symbols_;
    std::vector<std::uint32_t> words_;
};

class RansReader {
  public:
    /// A stream shorter than its state is corrupt from the start.
    explicit RansReader(std::span<const std::byte> stream);

    std::uint32_t peek(unsigned bits) const {
        return static_cast<std::uint32_t>(state_ & ((std::uint64_t{1} << bits) - 1));
    }
    void advance(std::uint32_t start, std::uint32_t frequency, unsigned bits) {
        state_ = frequency * (state_ >> bits) + peek(bits) - start;
        if (state_ < kRansLow) refill();
    }
    std::uint64_t take_bits(unsigned bits);

    bool ok() const { return ok_; }
    /// True when the stream ended exactly here, as its writer left it.
    bool finished() const { return ok_ && state_ == kRansLow && next_ == end_; }

  private:
    void refill() {
        if (next_ == end_) {
            ok_ = false;
            state_ = kRansLow;  // stays in range; the caller learns from ok()
            return;
        }
        state_ = (state_ << 32) | load_le<std::uint32_t>(next_);
        next_ += 4;
    }
    std::uint64_t state_ = kRansLow;
    const std::byte* next_ = nullptr;
    const std::byte* end_ = nullptr;
    bool ok_ = true;
};

}  // namespace wisp
