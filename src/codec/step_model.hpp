// How a new value is written given the old one: as a step in the order of values.
//
// Elements of floats are put in order (sign-magnitude made monotonic), integers stand as they are;
// the step is the difference modulo 2^n, never zero. 91 % of steps are +1 or -1. Every bit pattern
// of every dtype has exactly one place in the order, so NaN payloads and signed zeros need no
// escape. doc/format.md section 10 has the symbols of sparse blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "codec/adaptive_bit.hpp"
#include "codec/step_length.hpp"
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

/// Of a sparse block: a step of one and its sign are one symbol; longer ones have their sign last.
inline void put_step(RansWriter& out, const StepContext& context, const Step& step) {
    if (step.magnitude != 1) {
        put_long<Lane::kValue>(out, context, step.magnitude);
        out.put_bits(step.negative ? 1 : 0, 1);
        return;
    }
    AdaptiveBit& longer = *context.first;
    const std::uint32_t half = (AdaptiveBit::kTotal - longer.one()) / 2;
    out.put_value(longer.one() + (step.negative ? half : 0), half, AdaptiveBit::kBits);
    longer.learn(false);
}
inline Step take_step(RansReader& in, const StepContext& context, unsigned width, bool& overlong) {
    AdaptiveBit& longer = *context.first;
    const std::uint32_t slot = in.peek<Lane::kValue>(AdaptiveBit::kBits);
    if (slot < longer.one()) {
        RansReader aside = in;  // so that `in` itself can stay in registers
        const std::uint64_t magnitude = take_long<Lane::kValue>(aside, context, width, overlong);
        const bool negative = aside.take_bits(1) != 0;
        in = aside;
        return {magnitude, negative};
    }
    const std::uint32_t half = (AdaptiveBit::kTotal - longer.one()) / 2;
    const bool negative = slot >= longer.one() + half;
    in.advance<Lane::kValue>(longer.one() + (negative ? half : 0), half, AdaptiveBit::kBits);
    longer.learn(false);
    return {1, negative};
}

/// Of sparse blocks: every class learns for itself.
class StepModel {
  public:
    using Step = wisp::Step;

    void put(RansWriter& out, std::uint32_t element_class, const Step& step) {
        put_step(out, context(element_class), step);
    }
    Step take(RansReader& in, std::uint32_t element_class, unsigned width, bool& overlong) {
        return take_step(in, context(element_class), width, overlong);
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

}  // namespace wisp
