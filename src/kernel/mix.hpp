// The mix of one 64-bit word into the state digest: doc/format.md section 3.
//
// As in XXH3's accumulation: xor with a key, multiply the halves, add the word itself so that a
// zero half hides nothing. The key walks with the word's index, so equal words elsewhere differ.
#pragma once

#include <cstdint>

#include "kernel/tensor_seed.hpp"
#include "wisp/state.hpp"

namespace wisp {

inline constexpr std::uint64_t kKeyStrideA = 0x9E3779B97F4A7C15;
inline constexpr std::uint64_t kKeyStrideB = 0xC2B2AE3D27D4EB4F;

inline std::uint64_t fold_word(std::uint64_t word, std::uint64_t key) {
    const std::uint64_t keyed = word ^ key;
    return (keyed & 0xFFFFFFFF) * (keyed >> 32) + word;
}

inline StateDigest mix_word(const TensorSeed& seed, std::uint64_t index, std::uint64_t word) {
    return {fold_word(word, seed.a + index * kKeyStrideA),
            fold_word(word, seed.b + index * kKeyStrideB)};
}

}  // namespace wisp
