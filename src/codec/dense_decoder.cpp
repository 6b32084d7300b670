#include "codec/dense_decoder.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "base/try.hpp"
#include "codec/sign_rotation.hpp"
#include "codec/step_token.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

constexpr std::size_t kDecodeChunk = 4096;

std::unexpected<Error> corrupt_dense(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("dense block: ") + what);
}

/// Numbers side by side, the lowest bit first. Past the end there are zeros, and overrun().
class BitReader {
  public:
    explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    std::uint32_t take(unsigned bits) {
        const std::size_t at = std::min(position_ / 8, bytes_.size());
        const std::uint64_t word = load_word(bytes_.data(), at, bytes_.size()) >> (position_ % 8);
        position_ += bits;
        return static_cast<std::uint32_t>(word & ((std::uint64_t{1} << bits) - 1));
    }
    bool overrun() const { return position_ > bytes_.size() * 8; }
    /// The last byte was reached, and what is left of it is zero.
    bool finished() {
        if ((position_ + 7) / 8 != bytes_.size()) return false;
        return take(static_cast<unsigned>(bytes_.size() * 8 - position_)) == 0;
    }

  private:
    std::span<const std::byte> bytes_;
    std::size_t position_ = 0;
};

template <class T>
void join_bytes(std::span<const std::uint8_t> high_bytes, std::span<const std::byte> low_bytes,
                std::byte* elements) {
    constexpr std::size_t kKept = sizeof(T) - 1;
    for (std::size_t i = 0; i < high_bytes.size(); ++i) {
        T rotated = static_cast<T>(T{high_bytes[i]} << (sizeof(T) * 8 - 8));
        if constexpr (kKept > 0) {
            T low = 0;
            std::memcpy(&low, low_bytes.data() + i * kKept, kKept);
            rotated |= low;
        }
        store_le<T>(elements + i * sizeof(T), rotate_sign_up(rotated));
    }
}

/// Tokens, and what stands behind them, into steps.
template <class T>
void make_steps(std::span<const std::uint8_t> tokens, BitReader& behind, T* steps) {
    std::ranges::copy(tokens, steps);
    const auto lengthen = [&](std::size_t i) {
        const TokenMeaning meaning = kTokenMeanings[tokens[i]];
        steps[i] = static_cast<T>(meaning.base + behind.take(meaning.bits));
    };
    std::size_t i = 0;
    for (; i + 8 <= tokens.size(); i += 8) {
        std::uint64_t eight;
        std::memcpy(&eight, &tokens[i], 8);
        for_each_long(eight, [&](std::size_t index) { lengthen(i + index); });
    }
    for (; i < tokens.size(); ++i) {
        if (tokens[i] >= kPlainTokens) lengthen(i);
    }
}

/// Lists what differs between parts of two blocks, over what was in the list before: to clear it,
/// or to list beside it first, would take as long as to list.
class ChangeLister {
  public:
    explicit ChangeLister(BlockChanges& changes) : changes_(changes) {}

    /// Parts that begin at a byte of theirs.
    void add(std::span<const std::byte> old_part, std::span<const std::byte> new_part,
             std::size_t first_byte) {
        const unsigned width = changes_.element_bytes;
        const std::size_t count = old_part.size() / width;
        make_room(found_ + count);
        const ChangeRoom room = {changes_.positions.data(), changes_.old_bits.data(),
                                 changes_.new_bits.data()};
        found_ += active_kernels().list_changes(old_part.data(), new_part.data(), count, width,
                                                static_cast<std::uint32_t>(first_byte / width),
                                                room.behind(found_, width));
    }
    void finish() { resize(found_); }

  private:
    void make_room(std::size_t count) {
        if (count > changes_.count() || count * changes_.element_bytes > changes_.old_bits.size() ||
            changes_.old_bits.size() != changes_.new_bits.size()) {
            resize(count);
        }
    }
    void resize(std::size_t count) {
        changes_.positions.resize(count);
        changes_.old_bits.resize(count * changes_.element_bytes);
        changes_.new_bits.resize(count * changes_.element_bytes);
    }
    BlockChanges& changes_;
    std::size_t found_ = 0;
};

}  // namespace

Result<void> check_dense_length(std::span<const std::byte> coded, std::size_t element_count,
                                unsigned element_bytes) {
    const auto kind = static_cast<BlockKind>(coded[0]);
    const std::size_t body = coded.size() - 1;
    if (kind == BlockKind::kRaw) {
        if (body != element_count * element_bytes) return corrupt_dense("raw, of another length");
        return {};
    }
    // Tokens that are all alike take no more than their states.
    const std::size_t low_bytes =
        kind == BlockKind::kSplit ? element_count * (element_bytes - 1) : 0;
    if (body < kTokenStates * sizeof(std::uint32_t) + low_bytes) {
        return corrupt_dense("its length does not fit its elements");
    }
    return {};
}

Result<void> DenseDecoder::decode(std::span<const std::byte> coded,
                                  std::span<const std::byte> old_block, const DtypeTraits& traits,
                                  std::byte* new_block) {
    return decode_parts(coded, old_block, traits, new_block,
                        [](std::size_t, std::span<const std::byte>) {});
}

Result<void> DenseDecoder::decode(std::span<const std::byte> coded,
                                  std::span<const std::byte> old_block, const DtypeTraits& traits,
                                  BlockChanges& changes) {
    ChangeLister lister(changes);
    auto decoded =
        decode_parts(coded, old_block, traits, nullptr,
                     [&](std::size_t first, std::span<const std::byte> new_part) {
                         lister.add(old_block.subspan(first, new_part.size()), new_part, first);
                     });
    lister.finish();
    return decoded;
}

Result<void> DenseDecoder::decode_parts(std::span<const std::byte> coded,
                                        std::span<const std::byte> old_block,
                                        const DtypeTraits& traits, std::byte* new_block,
                                        const TakePart& take) {
    ByteReader in(coded);
    switch (static_cast<BlockKind>(in.fixed<std::uint8_t>())) {
        case BlockKind::kSplit:
            return decode_split(in, old_block.size(), traits.element_bytes, new_block, take);
        case BlockKind::kSteps: return decode_steps(in, old_block, traits, new_block, take);
        default: break;
    }
    if (in.remaining() != old_block.size()) return corrupt_dense("raw, of another length");
    const std::size_t part = kDecodeChunk * traits.element_bytes;
    for (std::size_t at = 0; at < old_block.size(); at += part) {
        const auto new_part = in.take(std::min(part, old_block.size() - at));
        if (new_block != nullptr) std::ranges::copy(new_part, new_block + at);
        take(at, new_part);
    }
    return {};
}

Result<void> DenseDecoder::decode_split(ByteReader& in, std::size_t block_bytes,
                                        unsigned element_bytes, std::byte* new_block,
                                        const TakePart& take) {
    WISP_ASSIGN(const TokenTable table, parse_token_table(in));
    const auto stream = in.take(in.varint());
    const std::size_t count = block_bytes / element_bytes;
    const auto low_bytes = in.take(count * (element_bytes - 1));
    if (!in.ok() || !in.at_end()) return corrupt_dense("its length does not fit its elements");
    if (!reader_.open(stream)) return corrupt_dense("a state is out of range");
    reader_.set_tables({&table, 1});
    constexpr std::array<std::uint8_t, kDecodeChunk> kOneClass{};
    std::array<std::uint8_t, kDecodeChunk> high_bytes;
    std::array<std::byte, kDecodeChunk * 8> aside;
    for (std::size_t first = 0; first < count; first += kDecodeChunk) {
        const std::size_t size = std::min(kDecodeChunk, count - first);
        std::byte* const new_part =
            new_block != nullptr ? new_block + first * element_bytes : aside.data();
        reader_.take(size, kOneClass.data(), high_bytes.data());
        with_element_type(element_bytes, [&]<class T>(T) {
            join_bytes<T>({high_bytes.data(), size},
                          low_bytes.subspan(first * (sizeof(T) - 1), size * (sizeof(T) - 1)),
                          new_part);
            return 0;
        });
        take(first * element_bytes, {new_part, size * element_bytes});
    }
    if (!reader_.finished()) return corrupt_dense("its stream does not end with its last element");
    return {};
}

Result<void> DenseDecoder::decode_steps(ByteReader& in, std::span<const std::byte> old_block,
                                        const DtypeTraits& traits, std::byte* new_block,
                                        const TakePart& take) {
    const unsigned width = traits.element_bytes;
    const ExponentField field = exponent_field(traits);
    ClassWindow window;
    window.top = in.fixed<std::uint8_t>();
    window.low = in.fixed<std::uint8_t>();
    if (width > kMaxStepBytes) return corrupt_dense("steps of elements of more than four bytes");
    if (window.top >= kMaxTokenClasses) return corrupt_dense("more than 8 classes");
    if (window.low + window.top > field.largest()) {
        return corrupt_dense("classes beyond the exponents of its dtype");
    }
    std::array<TokenTable, kMaxTokenClasses> tables;
    for (std::size_t i = 0; i <= window.top; ++i) {
        WISP_ASSIGN(tables[i], parse_token_table(in));
        if (tables[i].start[token_limit(width)] != 1U << kTokenBits) {
            return corrupt_dense("a step is longer than its element");
        }
    }
    const auto stream = in.take(in.varint());
    if (!in.ok() || !reader_.open(stream)) return corrupt_dense("a state is out of range");
    reader_.set_tables(std::span(tables).first(window.top + 1U));
    BitReader behind(in.take(in.remaining()));
    std::array<std::uint8_t, kDecodeChunk> classes;
    std::array<std::uint8_t, kDecodeChunk> tokens;
    alignas(64) std::array<std::byte, kDecodeChunk * kMaxStepBytes> steps;
    std::array<std::byte, kDecodeChunk * kMaxStepBytes> aside;
    const std::size_t count = old_block.size() / width;
    for (std::size_t first = 0; first < count && !behind.overrun(); first += kDecodeChunk) {
        const std::size_t size = std::min(kDecodeChunk, count - first);
        const std::byte* const old_part = old_block.data() + first * width;
        std::byte* const new_part = new_block != nullptr ? new_block + first * width : aside.data();
        active_kernels().take_exponents(old_part, size, width, field, classes.data());
        classify(window, {classes.data(), size});
        reader_.take(size, classes.data(), tokens.data());
        with_element_type(width, [&]<class T>(T) {
            if constexpr (sizeof(T) <= kMaxStepBytes) {
                make_steps({tokens.data(), size}, behind, reinterpret_cast<T*>(steps.data()));
            }
            return 0;
        });
        active_kernels().follow_steps(old_part, steps.data(), size, width, traits.sign_magnitude,
                                      new_part);
        take(first * width, {new_part, size * width});
    }
    if (!reader_.finished()) return corrupt_dense("its stream does not end with its last element");
    if (!behind.finished()) return corrupt_dense("its bits do not end with its last element");
    return {};
}

void compare_blocks(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                    BlockChanges& changes) {
    constexpr std::size_t kPartBytes = 1U << 14;
    ChangeLister lister(changes);
    for (std::size_t at = 0; at < old_block.size(); at += kPartBytes) {
        const std::size_t size = std::min(kPartBytes, old_block.size() - at);
        lister.add(old_block.subspan(at, size), new_block.subspan(at, size), at);
    }
    lister.finish();
}

std::unexpected<Error> unknown_kind() {
    return fail(ErrorKind::kUnsupported,
                "coded block: unknown kind; a newer wisp wrote it, upgrade to read it");
}

}  // namespace wisp
