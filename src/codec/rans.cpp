#include "codec/rans.hpp"

#include <algorithm>

namespace wisp {
namespace {

constexpr unsigned kChunkBits = 16;

}  // namespace

void append_words(std::span<const std::uint32_t> words, Bytes& out) {
    const std::size_t at = out.size();
    out.resize(at + words.size() * 4);
    std::byte* to = out.data() + at;
    for (auto word = words.rbegin(); word != words.rend(); ++word, to += 4) store_le(to, *word);
}

void RansWriter::put_bits(std::uint64_t value, unsigned bits, Lane lane) {
    for (; bits > kChunkBits; bits -= kChunkBits, value >>= kChunkBits) {
        put_value(static_cast<std::uint32_t>(value & 0xFFFF), 1, kChunkBits, lane);
    }
    if (bits > 0) {
        put_value(static_cast<std::uint32_t>(value & ((1U << bits) - 1)), 1, bits, lane);
    }
}

RansStates RansWriter::code(std::size_t more) {
    words_.resize(std::max(words_.size(), symbols_.size() + more + 1));
    RansStates states;
    states.next = words_.data();
    for (auto symbol = symbols_.rbegin(); symbol != symbols_.rend(); ++symbol) {
        const auto frequency =
            static_cast<std::uint32_t>(*symbol >> kFrequencyShift) & ((1U << kPositionBits) - 1);
        if ((*symbol & kPosition) != 0) {
            const auto start = static_cast<std::uint32_t>(*symbol) & ((1U << kPositionBits) - 1);
            rans_put(states.position, states.next, {start, frequency, kPositionBits});
            continue;
        }
        const RansSymbol value = {static_cast<std::uint32_t>(*symbol & 0xFFFF), frequency,
                                  static_cast<unsigned>(*symbol >> 16 & 31)};
        if ((*symbol & kOtherLane) != 0) {
            rans_put(states.position, states.next, value);
        } else {
            rans_put(states.value, states.next, value);
        }
    }
    clear();
    return states;
}

void RansWriter::append(const RansStates& states, Bytes& out) const {
    append_fixed(out, states.position);
    append_fixed(out, states.value);
    append_words({words_.data(), states.next}, out);
}

}  // namespace wisp
