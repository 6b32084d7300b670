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
#include "codec/rans_reader.hpp"
#include "kernel/element_class.hpp"

namespace wisp {

/// A probability of a one bit, learnt as it is used: quickly at first, then as a running mean.
class AdaptiveBit {
  public:
    static constexpr unsigned kBits = 16;
    static constexpr std::uint32_t kTotal = 1U << kBits;

    /// Of kTotal slots the first one() mean a one bit. Even, so that the rest can be halved.
    std::uint32_t one() const { return one_; }

    void put(RansWriter& out, bool bit) {
        if (bit) {
            out.put_value(0, one_, kBits);
        } else {
            out.put_value(one_, kTotal - one_, kBits);
        }
        learn(bit);
    }
    bool take(RansReader& in) {
        const bool bit = in.peek<Lane::kValue>(kBits) < one_;
        if (bit) {
            in.advance<Lane::kValue>(0, one_, kBits);
        } else {
            in.advance<Lane::kValue>(one_, kTotal - one_, kBits);
        }
        learn(bit);
        return bit;
    }
    void learn(bool bit) {
        const std::uint32_t rate = kRates[seen_];
        if (bit) {
            one_ += ((kTotal - one_) * rate) >> kBits;
        } else {
            one_ -= (one_ * rate) >> kBits;
        }
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

/// A step of one and its sign are one symbol. Longer ones have the count of their bits in unary,
/// the second-highest bit, the rest as it is, and the sign.
class StepModel {
  public:
    struct Step {
        std::uint64_t magnitude;
        bool negative;
    };

    void put(RansWriter& out, std::uint32_t element_class, const Step& step) {
        ClassModel& model = classes_[element_class];
        if (step.magnitude != 1) return put_long(out, model, step);
        AdaptiveBit& longer = model.longer[0];
        const std::uint32_t half = (AdaptiveBit::kTotal - longer.one()) / 2;
        out.put_value(longer.one() + (step.negative ? half : 0), half, AdaptiveBit::kBits);
        longer.learn(false);
    }

    /// `width` bits per element bound the magnitude; a longer one turns `overlong` true.
    Step take(RansReader& in, std::uint32_t element_class, unsigned width, bool& overlong) {
        ClassModel& model = classes_[element_class];
        AdaptiveBit& longer = model.longer[0];
        const std::uint32_t slot = in.peek<Lane::kValue>(AdaptiveBit::kBits);
        if (slot < longer.one()) return take_long(in, model, width, overlong);
        const std::uint32_t half = (AdaptiveBit::kTotal - longer.one()) / 2;
        const bool negative = slot >= longer.one() + half;
        in.advance<Lane::kValue>(longer.one() + (negative ? half : 0), half, AdaptiveBit::kBits);
        longer.learn(false);
        return {1, negative};
    }

  private:
    static constexpr std::size_t kContexts = 24;  // longer magnitudes share the last
    struct ClassModel {
        std::array<AdaptiveBit, kContexts> longer;
        std::array<AdaptiveBit, kContexts> second;
    };
    static void put_long(RansWriter& out, ClassModel& model, const Step& step);
    static Step take_long(RansReader& in, ClassModel& model, unsigned width, bool& overlong);
    std::array<ClassModel, kMaxClasses> classes_;
};

}  // namespace wisp
