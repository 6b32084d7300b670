// How far a step goes: doc/format.md sections 10 and 12 have the symbols; the probabilities adapt.
#pragma once

#include <array>
#include <cstdint>

#include "codec/adaptive_bit.hpp"

namespace wisp {

/// The probabilities of one step. `longer` and `second` count the bits after the leading one;
/// numbers beyond `last` share the one there.
struct StepContext {
    AdaptiveBit* first;   // is it longer than one bit?
    AdaptiveBit* longer;  // from 1 on: is it longer than so many more?
    AdaptiveBit* second;
    unsigned last;
};

/// The length of a step of more than one: the count of its bits in unary, the second-highest bit,
/// the rest as it is. That it is one was not said yet.
template <Lane kLane>
void put_long(RansWriter& out, const StepContext& context, std::uint64_t length);
/// `width` bits per element bound it; a longer one turns `overlong` true.
template <Lane kLane>
std::uint64_t take_long(RansReader& in, const StepContext& context, unsigned width, bool& overlong);

/// Of a swift block, where signs stand elsewhere: one is a symbol, too.
template <Lane kLane>
void put_length(RansWriter& out, const StepContext& context, std::uint64_t length) {
    if (length != 1) return put_long<kLane>(out, context, length);
    context.first->put<kLane>(out, false);
}
template <Lane kLane>
std::uint64_t take_length(RansReader& in, const StepContext& context, unsigned width,
                          bool& overlong) {
    if (in.peek<kLane>(AdaptiveBit::kBits) < context.first->one()) {
        RansReader aside = in;  // so that `in` itself can stay in registers
        const std::uint64_t length = take_long<kLane>(aside, context, width, overlong);
        in = aside;
        return length;
    }
    context.first->take<kLane>(in);
    return 1;
}

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
