// Numbers of a few bits, side by side, the lowest bit first.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace wisp {

/// Appends to `out`; each number is of at most 32 bits, and has none beyond those it is put with.
class BitWriter {
  public:
    explicit BitWriter(Bytes& out) : out_(out) {}
    void put(std::uint32_t number, unsigned bits) {
        held_ |= std::uint64_t{number} << held_bits_;
        held_bits_ += bits;
        if (held_bits_ < 32) return;
        append_fixed(out_, static_cast<std::uint32_t>(held_));
        held_ >>= 32;
        held_bits_ -= 32;
    }
    /// After the last: what is left of a byte is zero.
    void finish() {
        for (unsigned bits = 0; bits < held_bits_; bits += 8) {
            out_.push_back(static_cast<std::byte>(held_ >> bits));
        }
    }

  private:
    Bytes& out_;
    std::uint64_t held_ = 0;
    unsigned held_bits_ = 0;
};

}  // namespace wisp
