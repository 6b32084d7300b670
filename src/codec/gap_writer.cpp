#include "codec/gap_writer.hpp"

#include <array>
#include <bit>

namespace wisp {
namespace {

/// A slice and what dividing by its frequency takes: a multiplication, instead of the slowest
/// instruction there is. The reciprocal is rounded up at 63 bits more than the frequency has, which
/// is exact for all states below 2^63.
class QuotientSlice {
  public:
    QuotientSlice() = default;
    QuotientSlice(std::uint32_t start, std::uint32_t frequency)
        : limit_(((kRansLow >> kQuotientBits) << 32) * frequency),
          others_((1U << kQuotientBits) - frequency),
          start_(start) {
        if (frequency == 1) {  // whose reciprocal would not fit: x - 1 + 1 = x / 1
            reciprocal_ = ~std::uint64_t{0};
            start_ += others_;
            return;
        }
        shift_ = static_cast<unsigned>(std::bit_width(frequency - 1)) - 1;
        reciprocal_ = static_cast<std::uint64_t>(
            ((static_cast<Wide>(1) << (shift_ + 64)) + frequency - 1) / frequency);
    }

    /// As rans_put().
    void put(std::uint64_t& state, std::uint32_t*& next) const {
        const unsigned overflows = state >= limit_ ? 1 : 0;
        *next = static_cast<std::uint32_t>(state);
        next += overflows;
        state >>= 32 * overflows;
        const auto quotient =
            static_cast<std::uint64_t>(static_cast<Wide>(state) * reciprocal_ >> 64) >> shift_;
        // (x / f) * 2^b + x % f + start, and x % f = x - (x / f) * f
        state += quotient * others_ + start_;
    }

  private:
    __extension__ using Wide = unsigned __int128;
    std::uint64_t limit_ = 0;
    std::uint64_t reciprocal_ = 0;
    std::uint64_t others_ = 0;  // 2^b - f
    std::uint64_t start_ = 0;
    unsigned shift_ = 0;
};

}  // namespace

void GapWriter::append_low_bits(std::span<const std::uint32_t> positions, const GapShape& shape,
                                Bytes& out) {
    const unsigned width = shape.low_bits;
    const unsigned escape = QuotientTable(shape.zero_chance).escape;
    zero_chance_ = shape.zero_chance;
    count_ = positions.size();
    symbols_ = count_;
    if (quotients_.size() < count_) quotients_.resize(count_);
    const std::size_t start = out.size();
    const std::size_t bytes = (count_ * width + 7) / 8;
    out.resize(start + bytes + 8);  // whole words are written
    std::byte* to = out.data() + start;
    std::uint64_t held = 0;
    unsigned held_bits = 0;
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < count_; ++k) {
        const std::uint32_t gap = positions[k] - next;
        next = positions[k] + 1;
        const std::uint32_t quotient = gap >> width;
        quotients_[k] = quotient;
        if (quotient >= escape) [[unlikely]]
            symbols_ += quotient / escape;
        held |= static_cast<std::uint64_t>(gap & ((1U << width) - 1)) << held_bits;
        held_bits += width;
        // Whether half a word is full is as good as random, so it is not branched on.
        store_le(to, held);
        const unsigned full = held_bits / 32;
        to += std::size_t{4} * full;
        held >>= 32 * full;
        held_bits %= 32;
    }
    out.resize(start + bytes);
}

void GapWriter::code(RansStates& states) const {
    const QuotientTable table(zero_chance_);
    const unsigned escape = table.escape;
    std::array<QuotientSlice, kMaxQuotients + 1> slices;
    for (unsigned i = 0; i <= escape; ++i) {
        slices[i] = QuotientSlice(table.start[i], table.frequency[i]);
    }
    const auto put = [&](std::size_t k, std::uint64_t& state, std::uint32_t*& next) {
        std::uint32_t quotient = quotients_[k];
        std::uint32_t escapes = 0;
        if (quotient >= escape) [[unlikely]] {
            escapes = quotient / escape;
            quotient %= escape;
        }
        slices[quotient].put(state, next);
        for (; escapes != 0; --escapes) slices[escape].put(state, next);
    };
    RansStates local = states;  // in registers
    std::size_t k = count_;
    if (k % 2 != 0) put(--k, local.position, local.next);
    while (k != 0) {
        put(--k, local.value, local.next);
        put(--k, local.position, local.next);
    }
    states = local;
}

}  // namespace wisp
