// The reading side of rans.hpp. A reader that has failed stays in range and says so by ok().
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "codec/rans.hpp"

namespace wisp {

class RansReader {
  public:
    RansReader() = default;
    /// A stream shorter than its states is corrupt from the start.
    explicit RansReader(std::span<const std::byte> stream);

    template <Lane kLane>
    std::uint32_t peek(unsigned bits) const {
        return static_cast<std::uint32_t>(state<kLane>() & ((std::uint64_t{1} << bits) - 1));
    }
    template <Lane kLane>
    void advance(std::uint32_t start, std::uint32_t frequency, unsigned bits) {
        std::uint64_t& state = this->state<kLane>();
        state = frequency * (state >> bits) + peek<kLane>(bits) - start;
        refill(state);
    }
    /// Plain bits, of the values unless said otherwise.
    template <Lane kLane = Lane::kValue>
    std::uint64_t take_bits(unsigned bits);

    bool ok() const { return ok_; }
    /// True when the stream ended exactly here, as its writer left it.
    bool finished() const {
        return ok_ && position_ == kRansLow && value_ == kRansLow && next_ == end_;
    }

  private:
    template <Lane kLane>
    std::uint64_t& state() {
        return kLane == Lane::kPosition ? position_ : value_;
    }
    template <Lane kLane>
    const std::uint64_t& state() const {
        return kLane == Lane::kPosition ? position_ : value_;
    }
    /// Takes a word if the state ran low, which is as good as random and so not branched on.
    void refill(std::uint64_t& state) {
        if (end_ - next_ < 4) {
            refill_at_end(state);
            return;
        }
        const std::uint64_t refilled = (state << 32) | load_le<std::uint32_t>(next_);
        const bool low = state < kRansLow;
        state = low ? refilled : state;
        next_ += low ? 4 : 0;
    }
    void refill_at_end(std::uint64_t& state) {
        if (state >= kRansLow) return;
        ok_ = false;
        state = kRansLow;  // stays in range; the caller learns from ok()
    }
    std::uint64_t position_ = kRansLow;
    std::uint64_t value_ = kRansLow;
    const std::byte* next_ = nullptr;
    const std::byte* end_ = nullptr;
    bool ok_ = true;
};

template <Lane kLane>
std::uint64_t RansReader::take_bits(unsigned bits) {
    constexpr unsigned kChunkBits = 16;
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < bits; shift += kChunkBits) {
        const unsigned chunk = bits - shift < kChunkBits ? bits - shift : kChunkBits;
        const std::uint32_t part = peek<kLane>(chunk);
        advance<kLane>(part, 1, chunk);
        value |= std::uint64_t{part} << shift;
    }
    return value;
}

}  // namespace wisp
