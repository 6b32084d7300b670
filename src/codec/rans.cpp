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

void RansWriter::finish(Bytes& out) {
    std::uint64_t position_state = kRansLow;
    std::uint64_t value_state = kRansLow;
    words_.resize(std::max(words_.size(), symbols_.size() + 1));
    std::uint32_t* next = words_.data();
    for (auto symbol = symbols_.rbegin(); symbol != symbols_.rend(); ++symbol) {
        const auto frequency =
            static_cast<std::uint32_t>(*symbol >> kFrequencyShift) & ((1U << kPositionBits) - 1);
        if ((*symbol & kPosition) != 0) {
            const auto start = static_cast<std::uint32_t>(*symbol) & ((1U << kPositionBits) - 1);
            rans_put(position_state, next, {start, frequency, kPositionBits});
            continue;
        }
        const RansSymbol value = {static_cast<std::uint32_t>(*symbol & 0xFFFF), frequency,
                                  static_cast<unsigned>(*symbol >> 16 & 31)};
        if ((*symbol & kOtherLane) != 0) {
            rans_put(position_state, next, value);
        } else {
            rans_put(value_state, next, value);
        }
    }
    clear();
    append_fixed(out, position_state);
    append_fixed(out, value_state);
    append_words({words_.data(), next}, out);
}

}  // namespace wisp
