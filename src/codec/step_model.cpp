#include "codec/step_model.hpp"

namespace wisp {

template <Lane kLane>
void put_long_step(RansWriter& out, const StepContext& context, const Step& step) {
    const auto extra = static_cast<unsigned>(std::bit_width(step.magnitude)) - 1;
    context.first->put<kLane>(out, true);
    for (unsigned i = 1; i <= extra; ++i) {
        context.longer[std::min(i, context.last)].put<kLane>(out, i < extra);
    }
    const bool second = ((step.magnitude >> (extra - 1)) & 1) != 0;
    context.second[std::min(extra, context.last)].put<kLane>(out, second);
    out.put_bits(step.magnitude & ((std::uint64_t{1} << (extra - 1)) - 1), extra - 1, kLane);
    out.put_bits(step.negative ? 1 : 0, 1, kLane);
}

template <Lane kLane>
Step take_long_step(RansReader& in, const StepContext& context, unsigned width, bool& overlong) {
    context.first->take<kLane>(in);
    unsigned extra = 1;
    while (extra < width && context.longer[std::min(extra, context.last)].take<kLane>(in)) ++extra;
    if (extra >= width) {
        overlong = true;
        return {1, false};
    }
    const std::uint64_t second =
        context.second[std::min(extra, context.last)].take<kLane>(in) ? 3 : 2;
    const std::uint64_t magnitude = (second << (extra - 1)) | in.take_bits<kLane>(extra - 1);
    return {magnitude, in.take_bits<kLane>(1) != 0};
}

template void put_long_step<Lane::kPosition>(RansWriter&, const StepContext&, const Step&);
template void put_long_step<Lane::kValue>(RansWriter&, const StepContext&, const Step&);
template Step take_long_step<Lane::kPosition>(RansReader&, const StepContext&, unsigned, bool&);
template Step take_long_step<Lane::kValue>(RansReader&, const StepContext&, unsigned, bool&);

}  // namespace wisp
