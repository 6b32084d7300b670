// How a new value is written given the old one: as a step in the order of values.
//
// Elements of floats are put in order (sign-magnitude made monotonic), integers stand as they are;
// the step is the difference modulo 2^n, never zero. 91 % of steps are +1 or -1. Every bit pattern
// of every dtype has exactly one place in the order, so NaN payloads and signed zeros need no
// escape. doc/format.md sections 10 and 12 have the symbols; the probabilities adapt.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "codec/adaptive_bit.hpp"
#include "kernel/element_class.hpp"
#include "kernel/value_order.hpp"

namespace wisp {

struct Step {
    std::uint64_t magnitude;
    bool negative;
};

/// The step from one element to another in the order of values.
template <class T>
Step step_between(T before, T after, const ValueOrder<T>& order) {
    const T up = static_cast<T>(order(after) - order(before));
    const T down = static_cast<T>(T{0} - up);
    return {std::min(down, up), down < up};
}

/// Where a step leads from an element.
template <class T>
T stepped(T before, const Step& step, const ValueOrder<T>& order) {
    const T negative = static_cast<T>(T{0} - (step.negative ? 1U : 0U));
    const T difference = static_cast<T>((static_cast<T>(step.magnitude) ^ negative) - negative);
    return order(static_cast<T>(order(before) + difference));
}

/// The probabilities of one step. `longer` and `second` count the bits after the leading one;
/// numbers beyond `last` share the one there.
struct StepContext {
    AdaptiveBit* first;   // is it longer than one bit?
    AdaptiveBit* longer;  // from 1 on: is it longer than so many more?
    AdaptiveBit* second;
    unsigned last;
};

template <Lane kLane>
void put_long_step(RansWriter& out, const StepContext& context, const Step& step);
template <Lane kLane>
Step take_long_step(RansReader& in, const StepContext& context, unsigned width, bool& overlong);

/// A step of one and its sign are one symbol. Longer ones have the count of their bits in unary,
/// the second-highest bit, the rest as it is, and the sign.
template <Lane kLane>
void put_step(RansWriter& out, const StepContext& context, const Step& step) {
    if (step.magnitude != 1) return put_long_step<kLane>(out, context, step);
    AdaptiveBit& longer = *context.first;
    const std::uint32_t half = (AdaptiveBit::kTotal - longer.one()) / 2;
    out.put_value(longer.one() + (step.negative ? half : 0), half, AdaptiveBit::kBits, kLane);
    longer.learn(false);
}

/// `width` bits per element bound the magnitude; a longer one turns `overlong` true.
template <Lane kLane>
Step take_step(RansReader& in, const StepContext& context, unsigned width, bool& overlong) {
    AdaptiveBit& longer = *context.first;
    const std::uint32_t slot = in.peek<kLane>(AdaptiveBit::kBits);
    if (slot < longer.one()) {
        RansReader aside = in;  // so that `in` itself can stay in registers
        const Step step = take_long_step<kLane>(aside, context, width, overlong);
        in = aside;
        return step;
    }
    const std::uint32_t half = (AdaptiveBit::kTotal - longer.one()) / 2;
    const bool negative = slot >= longer.one() + half;
    in.advance<kLane>(longer.one() + (negative ? half : 0), half, AdaptiveBit::kBits);
    longer.learn(false);
    return {1, negative};
}

/// Of sparse blocks: every class learns for itself.
class StepModel {
  public:
    using Step = wisp::Step;

    void put(RansWriter& out, std::uint32_t element_class, const Step& step) {
        put_step<Lane::kValue>(out, context(element_class), step);
    }
    Step take(RansReader& in, std::uint32_t element_class, unsigned width, bool& overlong) {
        return take_step<Lane::kValue>(in, context(element_class), width, overlong);
    }

  private:
    static constexpr std::size_t kContexts = 24;  // longer magnitudes share the last
    struct ClassModel {
        std::array<AdaptiveBit, kContexts> longer;
        std::array<AdaptiveBit, kContexts> second;
    };
    StepContext context(std::uint32_t element_class) {
        ClassModel& model = classes_[element_class];
        return {model.longer.data(), model.longer.data(), model.second.data(), kContexts - 1};
    }
    std::array<ClassModel, kMaxClasses> classes_;
};

/// Of swift blocks. An optimizer's step has a size of its own, whatever the weight: whether a step
/// goes beyond its binade depends on which binade that is, not on how far below it the weight lies.
/// So a weight of exponent x that asks about i more bits shares the answer of exponent x + i.
class BinadeStepModel {
  public:
    StepContext context(std::uint8_t exponent) {
        return {&first_[exponent], &longer_[exponent], &second_[exponent], 63};
    }

  private:
    static constexpr std::size_t kBinades = 256 + 64;
    std::array<AdaptiveBit, 256> first_;
    std::array<AdaptiveBit, kBinades> longer_;
    std::array<AdaptiveBit, kBinades> second_;
};

}  // namespace wisp
