#include "codec/rans.hpp"

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
    words_.resize(order_.size() + 1);
    std::uint32_t* next = words_.data();
    const PositionSymbol* position = positions_.data() + positions_.size();
    const std::uint32_t* value = values_.data() + values_.size();
    for (auto bits = order_.rbegin(); bits != order_.rend(); ++bits) {
        if (*bits == kPositionMark) {
            --position;
            rans_put(position_state, next, {position->start, position->frequency, kPositionBits});
        } else {
            --value;
            const bool other = (*bits & kOtherLane) != 0;
            const unsigned plain = *bits & (kOtherLane - 1U);
            rans_put(other ? position_state : value_state, next,
                     {*value & 0xFFFF, *value >> 16, plain});
        }
    }
    clear();
    append_fixed(out, position_state);
    append_fixed(out, value_state);
    append_words({words_.data(), next}, out);
}

void RansWriter::clear() {
    order_.clear();
    positions_.clear();
    values_.clear();
}

}  // namespace wisp
