#include "codec/rans.hpp"

#include <algorithm>

namespace wisp {
namespace {

constexpr unsigned kChunkBits = 16;

}  // namespace

void RansWriter::put_bits(std::uint64_t value, unsigned bits) {
    for (; bits > kChunkBits; bits -= kChunkBits, value >>= kChunkBits) {
        put(static_cast<std::uint32_t>(value & 0xFFFF), 1, kChunkBits);
    }
    if (bits > 0) put(static_cast<std::uint32_t>(value & ((1U << bits) - 1)), 1, bits);
}

void RansWriter::finish(Bytes& out) {
    std::uint64_t state = kRansLow;
    words_.clear();
    for (auto symbol = symbols_.rbegin(); symbol != symbols_.rend(); ++symbol) {
        rans_put(state, words_, *symbol);
    }
    symbols_.clear();
    append_fixed(out, state);
    for (auto word = words_.rbegin(); word != words_.rend(); ++word) append_fixed(out, *word);
}

RansReader::RansReader(std::span<const std::byte> stream) {
    if (stream.size() < 8 || stream.size() % 4 != 0) {
        ok_ = false;
        return;
    }
    state_ = load_le<std::uint64_t>(stream.data());
    next_ = stream.data() + 8;
    end_ = stream.data() + stream.size();
    // Outside this range no writer ever leaves the state, and the arithmetic would overflow.
    if (state_ < kRansLow || state_ >= kRansLow << 32) {
        ok_ = false;
        state_ = kRansLow;
    }
}

std::uint64_t RansReader::take_bits(unsigned bits) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < bits; shift += kChunkBits) {
        const unsigned chunk = std::min(kChunkBits, bits - shift);
        const std::uint32_t part = peek(chunk);
        advance(part, 1, chunk);
        value |= std::uint64_t{part} << shift;
    }
    return value;
}

}  // namespace wisp
