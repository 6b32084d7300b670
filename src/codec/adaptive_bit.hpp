// A bit whose probability is learnt as it is used: doc/format.md section 10.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "codec/rans.hpp"
#include "codec/rans_reader.hpp"

namespace wisp {

/// Learns quickly at first, then as a running mean.
class AdaptiveBit {
  public:
    static constexpr unsigned kBits = 16;
    static constexpr std::uint32_t kTotal = 1U << kBits;

    /// Of kTotal slots the first one() mean a one bit. Even, so that the rest can be halved.
    std::uint32_t one() const { return one_; }

    template <Lane kLane>
    void put(RansWriter& out, bool bit) {
        if (bit) {
            out.put_value(0, one_, kBits, kLane);
        } else {
            out.put_value(one_, kTotal - one_, kBits, kLane);
        }
        learn(bit);
    }
    template <Lane kLane>
    bool take(RansReader& in) {
        // Selected, not branched on: which it is, is as good as random where it matters.
        const bool bit = in.peek<kLane>(kBits) < one_;
        in.advance<kLane>(bit ? 0 : one_, bit ? one_ : kTotal - one_, kBits);
        learn(bit);
        return bit;
    }
    void learn(bool bit) {
        const std::uint32_t rate = kRates[seen_];
        const std::uint32_t up = ((kTotal - one_) * rate) >> kBits;
        const std::uint32_t down = (one_ * rate) >> kBits;
        one_ = bit ? one_ + up : one_ - down;
        one_ = std::min(std::max(one_, kLeast), kTotal - kLeast) & ~1U;
        if (seen_ < kSlowest) ++seen_;
    }

  private:
    static constexpr std::uint32_t kLeast = 16;
    static constexpr std::uint32_t kSlowest = 254;
    /// 1 / (seen + 1.5), in 1/65536: the mean of what was seen, with half a prior of each.
    static constexpr auto kRates = [] {
        std::array<std::uint32_t, kSlowest + 1> rates{};
        for (std::uint32_t seen = 0; seen <= kSlowest; ++seen) {
            rates[seen] = (2 * kTotal) / (2 * seen + 3);
        }
        return rates;
    }();

    std::uint32_t one_ = kTotal / 2;
    std::uint32_t seen_ = 0;
};

}  // namespace wisp
