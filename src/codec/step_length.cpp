#include "codec/step_length.hpp"

#include <algorithm>
#include <bit>

namespace wisp {

template <Lane kLane>
void put_long(RansWriter& out, const StepContext& context, std::uint64_t length) {
    const auto extra = static_cast<unsigned>(std::bit_width(length)) - 1;
    context.first->put<kLane>(out, true);
    for (unsigned i = 1; i <= extra; ++i) {
        context.longer[std::min(i, context.last)].put<kLane>(out, i < extra);
    }
    const bool second = ((length >> (extra - 1)) & 1) != 0;
    context.second[std::min(extra, context.last)].put<kLane>(out, second);
    out.put_bits(length & ((std::uint64_t{1} << (extra - 1)) - 1), extra - 1, kLane);
}

template <Lane kLane>
std::uint64_t take_long(RansReader& in, const StepContext& context, unsigned width,
                        bool& overlong) {
    context.first->take<kLane>(in);
    unsigned extra = 1;
    while (extra < width && context.longer[std::min(extra, context.last)].take<kLane>(in)) ++extra;
    if (extra >= width) {
        overlong = true;
        return 1;
    }
    const std::uint64_t second =
        context.second[std::min(extra, context.last)].take<kLane>(in) ? 3 : 2;
    return (second << (extra - 1)) | in.take_bits<kLane>(extra - 1);
}

template void put_long<Lane::kPosition>(RansWriter&, const StepContext&, std::uint64_t);
template void put_long<Lane::kValue>(RansWriter&, const StepContext&, std::uint64_t);
template std::uint64_t take_long<Lane::kPosition>(RansReader&, const StepContext&, unsigned, bool&);
template std::uint64_t take_long<Lane::kValue>(RansReader&, const StepContext&, unsigned, bool&);

}  // namespace wisp
