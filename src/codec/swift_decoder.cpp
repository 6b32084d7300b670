#include "codec/swift_decoder.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "base/try.hpp"
#include "codec/block_layout.hpp"
#include "codec/by_turns.hpp"
#include "codec/gap_table.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

std::unexpected<Error> corrupt_swift(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("swift block: ") + what);
}

BlockKind kind_of(std::span<const std::byte> coded) {
    return static_cast<BlockKind>(coded[0]);
}

/// The gaps of a block, one after the other.
class GapReader {
  public:
    GapReader(const GapShape& shape, const std::byte* low_bits, RansReader& rans,
              std::size_t element_count)
        : table_(shape.zero_chance),
          low_bits_(low_bits),
          width_(shape.low_bits),
          largest_quotient_(element_count >> shape.low_bits),
          rans_(rans) {
        for (unsigned i = 0; i <= table_.escape; ++i) {
            std::fill_n(quotient_of_slot_.begin() + table_.start[i], table_.frequency[i],
                        static_cast<std::uint8_t>(i));
        }
    }

    template <Lane kLane>
    std::uint64_t take(std::size_t index) {
        std::uint64_t quotient = take_symbol<kLane>();
        if (quotient == table_.escape) [[unlikely]]
            quotient = take_far<kLane>();
        // Whole words are read: the stream behind the low bits has sixteen bytes and more.
        const std::size_t bit = index * width_;
        const std::uint32_t word = load_le<std::uint32_t>(low_bits_ + bit / 8) >> (bit % 8);
        return (quotient << width_) + (word & ((1U << width_) - 1));
    }

  private:
    template <Lane kLane>
    std::uint32_t take_symbol() {
        const std::uint8_t symbol = quotient_of_slot_[rans_.peek<kLane>(kQuotientBits)];
        rans_.advance<kLane>(table_.start[symbol], table_.frequency[symbol], kQuotientBits);
        return symbol;
    }
    /// Ends when the stream fails or the block is left, so that escapes cannot go on for ever.
    template <Lane kLane>
    std::uint64_t take_far() {
        std::uint64_t quotient = table_.escape;
        std::uint32_t symbol = take_symbol<kLane>();
        for (; symbol == table_.escape && quotient <= largest_quotient_ && rans_.ok();
             symbol = take_symbol<kLane>()) {
            quotient += symbol;
        }
        return quotient + symbol;
    }

    const QuotientTable table_;
    const std::byte* const low_bits_;
    const unsigned width_;
    const std::uint64_t largest_quotient_;
    RansReader& rans_;
    std::array<std::uint8_t, 1U << kQuotientBits> quotient_of_slot_;
};

/// The bits behind the last of `count` numbers of `width` bits are zero.
bool padding_is_zero(std::span<const std::byte> packed, std::uint64_t count, unsigned width) {
    const unsigned used = static_cast<unsigned>(count * width % 8);
    return used == 0 || static_cast<unsigned>(packed.back()) >> used == 0;
}

Result<SwiftReading> read_sparse_positions(ByteReader in, std::size_t element_count,
                                           const DtypeTraits& traits,
                                           std::vector<std::uint32_t>& positions,
                                           const std::byte* ahead) {
    const std::uint64_t count = in.varint();
    const GapShape shape = {in.fixed<std::uint8_t>(), in.fixed<std::uint8_t>()};
    const std::uint64_t single_from = in.varint();
    if (!in.ok()) return corrupt_swift("ends inside its header");
    if (count == 0 || count > element_count)
        return corrupt_swift("more changes than elements, or none");
    if (shape.low_bits > kMaxLowBits) return corrupt_swift("more than 24 low bits");
    if (shape.zero_chance == 0) return corrupt_swift("a quotient of zero has no chance");
    if (single_from > kMaxSingleFrom) return corrupt_swift("an exponent above 256");
    const auto low_bits = in.take((count * shape.low_bits + 7) / 8);
    if (!in.ok()) return corrupt_swift("ends inside its low bits");
    if (!padding_is_zero(low_bits, count, shape.low_bits))
        return corrupt_swift("padding is not zero");
    const auto signs = in.take((count + 7) / 8);
    if (!in.ok()) return corrupt_swift("ends inside its signs");
    if (!padding_is_zero(signs, count, 1)) return corrupt_swift("padding is not zero");
    RansReader rans(in.take(in.remaining()));
    if (!rans.ok()) return corrupt_swift("its stream is too short");
    // What was there is overwritten, not cleared: filling it with zeros first would take as long.
    positions.resize(static_cast<std::size_t>(count));
    GapReader gaps(shape, low_bits.empty() ? signs.data() : low_bits.data(), rans, element_count);
    const auto ahead_at = reinterpret_cast<std::uintptr_t>(ahead);
    const std::uint64_t width = ahead != nullptr ? traits.element_bytes : 0;
    std::uint64_t next = 0;
    by_turns(positions.size(), [&]<Lane kLane>(std::size_t i) {
        const std::uint64_t position = next + gaps.take<kLane>(i);
        positions[i] = static_cast<std::uint32_t>(position);
        // By number: one past the block is found out below.
        __builtin_prefetch(reinterpret_cast<const void*>(ahead_at + position * width));
        next = position + 1;
    });
    if (!rans.ok()) return corrupt_swift("its stream ends too early");
    // They ascend, so the last one speaks for all; 2^24 gaps below 2^31 do not overflow.
    if (next > element_count) return corrupt_swift("a position lies past the end of the block");
    return SwiftReading{&traits, rans, static_cast<unsigned>(single_from), signs, {}};
}

}  // namespace

Result<SwiftReading> read_swift_positions(std::span<const std::byte> coded,
                                          std::size_t element_count, const DtypeTraits& traits,
                                          std::vector<std::uint32_t>& positions,
                                          const std::byte* ahead) {
    SwiftReading reading;
    reading.traits = &traits;
    if (coded.empty()) {
        positions.clear();
        return reading;
    }
    if (kind_of(coded) == BlockKind::kSwift) {
        return read_sparse_positions(ByteReader(coded.subspan(1)), element_count, traits, positions,
                                     ahead);
    }
    if (!is_dense(kind_of(coded))) return unknown_kind();
    WISP_TRY(check_dense_length(coded, element_count, traits.element_bytes));
    reading.dense_block = coded;
    positions.resize(element_count);
    std::iota(positions.begin(), positions.end(), 0U);
    return reading;
}

Result<void> SwiftDecoder::values(const SwiftReading& reading, std::span<const std::byte> old_bits,
                                  std::span<std::byte> new_bits) {
    if (!reading.dense_block.empty()) {
        return dense_.decode(reading.dense_block, old_bits, *reading.traits, new_bits.data());
    }
    if (old_bits.empty()) return {};
    return steps_.follow(reading.rans, reading.single_from, reading.signs.data(), old_bits,
                         *reading.traits, new_bits.data());
}

bool SwiftDecoder::is_sparse(std::span<const std::byte> coded) {
    return coded.empty() || !is_dense(kind_of(coded));
}

Result<void> SwiftDecoder::decode(std::span<const std::byte> coded, const OverlaidBlock& old_block,
                                  const DtypeTraits& traits, BlockChanges& changes) {
    changes.element_bytes = traits.element_bytes;
    if (!is_sparse(coded)) return dense_.decode(coded, old_block.bytes, traits, changes);
    WISP_ASSIGN(const SwiftReading reading,
                read_swift_positions(coded, old_block.bytes.size() / traits.element_bytes, traits,
                                     changes.positions, old_block.bytes.data()));
    changes.old_bits.resize(changes.count() * traits.element_bytes);
    changes.new_bits.resize(changes.old_bits.size());
    old_block.gather(changes.positions, traits.element_bytes, changes.old_bits.data());
    return values(reading, changes.old_bits, changes.new_bits);
}

}  // namespace wisp
