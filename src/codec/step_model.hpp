// How a new value is written given the old one: as a step in the order of values.
//
// Elements of floats are put in order (sign-magnitude made monotonic), integers stand as they are;
// the step is the difference modulo 2^n, never zero. 91 % of steps are +1 or -1. Every bit pattern
// of every dtype has exactly one place in the order, so NaN payloads and signed zeros need no
// escape. doc/format.md section 10 has the symbols; the probabilities adapt per class.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "codec/rans.hpp"
#include "kernel/element_class.hpp"

namespace wisp {

/// An involution: flips the magnitude bits of negative floats.
template <class T>
constexpr T to_order(T bits, bool sign_magnitude) {
    constexpr T kSign = static_cast<T>(T{1} << (sizeof(T) * 8 - 1));
    return sign_magnitude && (bits & kSign) != 0 ? static_cast<T>(bits ^ (kSign - 1U)) : bits;
}

/// A probability of a one bit, learnt as it is used: quickly at first, then as a running mean.
class AdaptiveBit {
  public:
    void put(RansWriter& out, bool bit) {
        if (bit) {
            out.put(0, one_, kBits);
        } else {
            out.put(one_, kTotal - one_, kBits);
        }
        learn(bit);
    }
    bool take(RansReader& in) {
        const bool bit = in.peek(kBits) < one_;
        if (bit) {
            in.advance(0, one_, kBits);
        } else {
            in.advance(one_, kTotal - one_, kBits);
        }
        learn(bit);
        return bit;
    }

  private:
    static constexpr unsigned kBits = 16;
    static constexpr std::uint32_t kTotal = 1U << kBits;
    static constexpr std::uint32_t kLeast = 16;
    static constexpr std::uint32_t kSlowest = 254;

    void learn(bool bit) {
        // 1 / (seen + 1.5), in 1/65536: the mean of what was seen, with half a prior of each.
        const std::uint32_t rate = (2 * kTotal) / (2 * seen_ + 3);
        if (bit) {
            one_ += ((kTotal - one_) * rate) >> kBits;
        } else {
            one_ -= (one_ * rate) >> kBits;
        }
        one_ = std::min(std::max(one_, kLeast), kTotal - kLeast);
        if (seen_ < kSlowest) ++seen_;
    }

    std::uint32_t one_ = kTotal / 2;
    std::uint32_t seen_ = 0;
};

/// Magnitudes as the count of their bits in unary, the second-highest bit, and the rest as it is;
/// then the sign.
class StepModel {
  public:
    void put(RansWriter& out, std::uint32_t element_class, std::uint64_t magnitude, bool negative);

    struct Step {
        std::uint64_t magnitude;
        bool negative;
    };
    /// `width` bits per element bound the magnitude; a longer one turns `overlong` true.
    Step take(RansReader& in, std::uint32_t element_class, unsigned width, bool& overlong);

  private:
    static constexpr std::size_t kContexts = 24;  // longer magnitudes share the last
    struct ClassModel {
        std::array<AdaptiveBit, kContexts> longer;
        std::array<AdaptiveBit, kContexts> second;
    };
    std::array<ClassModel, kMaxClasses> classes_;
};

}  // namespace wisp
