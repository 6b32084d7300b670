// The step of an element as a token of few and the bits behind it: doc/format.md section 11.
//
// Small steps are tokens of their own. Of longer ones the token says how long the number is and the
// two bits after its leading one; what is left is as good as random, and stands as it is.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace wisp {

inline constexpr std::uint32_t kPlainTokens = 16;
inline constexpr unsigned kMaxStepBytes = 4;  // of an element: the bits behind a token fit a word

/// Of a step in zigzag.
constexpr std::uint32_t token_of_step(std::uint32_t step) {
    if (step < kPlainTokens) return step;
    const auto bits = static_cast<std::uint32_t>(std::bit_width(step));
    return kPlainTokens + (bits - 5) * 4 + ((step >> (bits - 3)) & 3);
}

/// How many bits stand behind a token.
constexpr unsigned bits_behind(std::uint32_t token) {
    return token < kPlainTokens ? 0 : (token - kPlainTokens) / 4 + 2;
}

/// One past the highest token of an element of so many bytes.
constexpr std::uint32_t token_limit(unsigned element_bytes) {
    return kPlainTokens + (8 * element_bytes - 4) * 4;
}

struct TokenMeaning {
    std::uint32_t base;
    unsigned bits;
};
/// The least step of each token, to which the bits behind it are added.
inline constexpr auto kTokenMeanings = [] {
    std::array<TokenMeaning, token_limit(kMaxStepBytes)> meanings{};
    for (std::uint32_t token = 0; token < meanings.size(); ++token) {
        const unsigned bits = bits_behind(token);
        meanings[token] = {bits == 0 ? token : (4 + token % 4) << bits, bits};
    }
    return meanings;
}();

/// Calls body(index) for each of eight tokens that has bits behind it.
template <class Body>
void for_each_long(std::uint64_t eight_tokens, Body&& body) {
    for (std::uint64_t high = eight_tokens & 0xF0F0F0F0F0F0F0F0; high != 0;) {
        const auto index = static_cast<unsigned>(std::countr_zero(high)) / 8;
        body(index);
        high &= ~(std::uint64_t{0xFF} << (8 * index));
    }
}

}  // namespace wisp
