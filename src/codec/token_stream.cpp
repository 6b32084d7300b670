#include "codec/token_stream.hpp"

#include <algorithm>

namespace wisp {
namespace {

constexpr std::uint32_t kSlots = 1U << kTokenBits;

}  // namespace

void TokenWriter::append(std::span<const std::uint8_t> tokens,
                         std::span<const std::uint8_t> classes, std::span<const TokenTable> tables,
                         Bytes& out) {
    slices_.resize(tables.size() * 256);
    for (std::size_t i = 0; i < slices_.size(); ++i) {
        const std::uint32_t frequency = tables[i / 256].frequency[i % 256];
        slices_[i] = tables[i / 256].start[i % 256] | frequency << kTokenBits;
    }
    words_.resize(tokens.size() + kTokenStates);
    TokenSink sink = {{}, words_.data(), slices_.data()};
    sink.states.fill(kTokenStateLow);
    const std::size_t whole = tokens.size() / kTokenStates * kTokenStates;
    kReferenceKernels.put_tokens(sink, classes.data() + whole, tokens.size() - whole,
                                 tokens.data() + whole);
    active_kernels().put_tokens(sink, classes.data(), whole, tokens.data());
    const std::size_t word_bytes = static_cast<std::size_t>(sink.next - words_.data()) * 2;
    append_varint(out, sizeof(sink.states) + word_bytes);
    for (const std::uint32_t state : sink.states) append_fixed(out, state);
    const std::size_t at = out.size();
    out.resize(at + word_bytes);
    std::reverse(words_.data(), sink.next);
    std::memcpy(out.data() + at, words_.data(), word_bytes);
}

void TokenReader::set_tables(std::span<const TokenTable> tables) {
    slots_.resize(tables.size() * kSlots);
    std::uint32_t* slot = slots_.data();
    for (const TokenTable& table : tables) {
        for (std::uint32_t token = 0; token < 256; ++token) {
            const std::uint32_t frequency = table.frequency[token];
            for (std::uint32_t i = 0; i < frequency; ++i) {
                *slot++ = token | i << 8 | (frequency - 1) << 20;
            }
        }
    }
    source_.slots = slots_.data();
}

bool TokenReader::open(std::span<const std::byte> stream) {
    ByteReader in(stream);
    bool in_range = true;
    for (std::uint32_t& state : source_.states) {
        state = in.fixed<std::uint32_t>();
        in_range = in_range && state >= kTokenStateLow;
    }
    const auto words = in.take(in.remaining());
    source_.next = words.data();
    end_ = words.data() + words.size();
    ok_ = in.ok() && in_range && words.size() % 2 == 0;
    return ok_;
}

void TokenReader::take(std::size_t count, const std::uint8_t* classes, std::uint8_t* tokens) {
    // So long as there is a word for each, nobody need ask.
    while (count >= kTokenStates) {
        const auto sure = static_cast<std::size_t>(end_ - source_.next) / (2 * kTokenStates);
        const std::size_t part = std::min(sure, count / kTokenStates) * kTokenStates;
        if (part == 0) break;
        active_kernels().take_tokens(source_, classes, part, tokens);
        classes += part;
        tokens += part;
        count -= part;
    }
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t& state = source_.states[i % kTokenStates];
        const std::uint32_t slot = slots_[std::size_t{classes[i]} * kSlots + state % kSlots];
        tokens[i] = static_cast<std::uint8_t>(slot);
        state = ((slot >> 20) + 1) * (state >> kTokenBits) + ((slot >> 8) & 0xFFF);
        if (state >= kTokenStateLow) continue;
        if (source_.next == end_) {
            ok_ = false;
            state = kTokenStateLow;  // stays in range; the caller learns from finished()
            continue;
        }
        state = (state << 16) | load_le<std::uint16_t>(source_.next);
        source_.next += 2;
    }
}

bool TokenReader::finished() const {
    return ok_ && source_.next == end_ &&
           std::ranges::all_of(source_.states,
                               [](std::uint32_t state) { return state == kTokenStateLow; });
}

}  // namespace wisp
