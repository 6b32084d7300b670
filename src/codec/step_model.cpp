#include "codec/step_model.hpp"

#include <algorithm>

namespace wisp {

void StepModel::put(RansWriter& out, std::uint32_t element_class, std::uint64_t magnitude,
                    bool negative) {
    ClassModel& model = classes_[element_class];
    const auto extra = static_cast<unsigned>(std::bit_width(magnitude)) - 1;
    for (unsigned i = 0; i < extra; ++i) {
        model.longer[std::min<std::size_t>(i, kContexts - 1)].put(out, true);
    }
    model.longer[std::min<std::size_t>(extra, kContexts - 1)].put(out, false);
    if (extra > 0) {
        const bool second = ((magnitude >> (extra - 1)) & 1) != 0;
        model.second[std::min<std::size_t>(extra, kContexts - 1)].put(out, second);
        out.put_bits(magnitude & ((std::uint64_t{1} << (extra - 1)) - 1), extra - 1);
    }
    out.put_bits(negative ? 1 : 0, 1);
}

StepModel::Step StepModel::take(RansReader& in, std::uint32_t element_class, unsigned width,
                                bool& overlong) {
    ClassModel& model = classes_[element_class];
    unsigned extra = 0;
    while (model.longer[std::min<std::size_t>(extra, kContexts - 1)].take(in)) {
        if (++extra >= width) {
            overlong = true;
            return {1, false};
        }
    }
    std::uint64_t magnitude = 1;
    if (extra > 0) {
        const bool second = model.second[std::min<std::size_t>(extra, kContexts - 1)].take(in);
        magnitude = (magnitude << 1) | (second ? 1U : 0U);
        magnitude = (magnitude << (extra - 1)) | in.take_bits(extra - 1);
    }
    return {magnitude, in.take_bits(1) != 0};
}

}  // namespace wisp
