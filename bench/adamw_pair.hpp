// Two consecutive states of a model as RL training leaves them: the generator of demo and bench.
//
// Each weight is a bf16 rounding of an fp32 master weight. The master starts as a sample of a
// normal distribution (scale 0.02 to 0.05 per tensor, as initialisers and training leave it), at a
// place inside its bf16 cell that is uniform, since thousands of steps have gone before. One AdamW
// step moves it by lr * m/sqrt(v) + lr * weight_decay * w, where m/sqrt(v) of noisy gradients is
// close to normal with a spread below one. Both states are then rounded to bf16, to nearest even.
// What changes is thereby what changes in training: P(change) halves with each binade, nearly all
// steps are one ULP. Deterministic in (seed, index): any thread may fill any part.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace wisp::bench {

inline std::uint64_t scramble(std::uint64_t x) {  // splitmix64
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

/// Close to normal, by the sum of eight bytes; mean 0, variance 1.
inline float normal(std::uint64_t bits) {
    std::uint32_t sum = 0;
    for (int i = 0; i < 8; ++i, bits >>= 8) sum += static_cast<std::uint32_t>(bits & 0xFF);
    return (static_cast<float>(sum) - 1020.0F) * (1.0F / 209.0F);
}

inline std::uint16_t round_to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

struct AdamWStep {
    float learning_rate = 1e-6F;
    float weight_decay = 0.01F;
    float ratio_spread = 0.22F;  // of m / sqrt(v)
};

inline void fill_pair(std::uint64_t seed, std::uint64_t first, std::size_t count, float scale,
                      const AdamWStep& step, std::uint16_t* old_state, std::uint16_t* new_state) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t a = scramble(seed * 0x2545F4914F6CDD1D + first + i);
        const std::uint64_t b = scramble(a);
        // The low bits of the sample are coarse; a uniform part below the bf16 spacing refines it.
        const float coarse = normal(a) + static_cast<float>(b >> 40) * (1.0F / 16777216 / 104);
        const float master = coarse * scale;
        const float move = normal(scramble(b)) * step.ratio_spread + step.weight_decay * master;
        old_state[i] = round_to_bf16(master);
        new_state[i] = round_to_bf16(master - step.learning_rate * move);
    }
}

}  // namespace wisp::bench
