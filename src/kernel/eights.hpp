// Sums over the first few of eight numbers, without a branch or a loop of unknown length.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace wisp {

using EightMask = std::array<std::uint32_t, 8>;

/// kFirstOfEight[n] keeps the first n.
inline constexpr auto kFirstOfEight = [] {
    std::array<EightMask, 8> masks{};
    for (std::size_t n = 0; n < 8; ++n) {
        for (std::size_t i = 0; i < n; ++i) masks[n][i] = ~0U;
    }
    return masks;
}();

/// The sum of those of eight numbers that the mask keeps. Left to itself the compiler would add
/// them one by one.
inline std::uint32_t sum_of_first(const std::uint32_t* numbers, const EightMask& mask) {
    using Four = std::uint32_t __attribute__((vector_size(16)));
    Four parts[2];
    Four masks[2];
    std::memcpy(parts, numbers, sizeof(parts));
    std::memcpy(masks, mask.data(), sizeof(masks));
    const Four sum = (parts[0] & masks[0]) + (parts[1] & masks[1]);
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/// The same for the weights of eight exponents.
inline std::uint32_t weight_of_first(const std::uint8_t* exponents, const std::uint32_t* weight_of,
                                     const EightMask& mask) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 8; ++i) sum += weight_of[exponents[i]] & mask[i];
    return sum;
}

}  // namespace wisp
