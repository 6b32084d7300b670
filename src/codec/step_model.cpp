#include "codec/step_model.hpp"

#include <algorithm>

namespace wisp {
namespace {

std::size_t context(unsigned extra, std::size_t contexts) {
    return std::min<std::size_t>(extra, contexts - 1);
}

}  // namespace

void StepModel::put_long(RansWriter& out, ClassModel& model, const Step& step) {
    const auto extra = static_cast<unsigned>(std::bit_width(step.magnitude)) - 1;
    for (unsigned i = 0; i < extra; ++i) model.longer[context(i, kContexts)].put(out, true);
    model.longer[context(extra, kContexts)].put(out, false);
    const bool second = ((step.magnitude >> (extra - 1)) & 1) != 0;
    model.second[context(extra, kContexts)].put(out, second);
    out.put_bits(step.magnitude & ((std::uint64_t{1} << (extra - 1)) - 1), extra - 1);
    out.put_bits(step.negative ? 1 : 0, 1);
}

StepModel::Step StepModel::take_long(RansReader& in, ClassModel& model, unsigned width,
                                     bool& overlong) {
    unsigned extra = 0;
    while (extra < width && model.longer[context(extra, kContexts)].take(in)) ++extra;
    if (extra >= width) {
        overlong = true;
        return {1, false};
    }
    const std::uint64_t second = model.second[context(extra, kContexts)].take(in) ? 3 : 2;
    const std::uint64_t magnitude = (second << (extra - 1)) | in.take_bits(extra - 1);
    return {magnitude, in.take_bits(1) != 0};
}

}  // namespace wisp
