// Training without a model: what AdamW with fp32 masters does to the weights, and nothing else.
//
// A master starts as a sample of a normal distribution (scale 0.03 to 0.045 per matrix, as training
// leaves it), at a place inside its bf16 cell that is uniform, since thousands of steps have gone
// before. A step moves it by lr * (m/sqrt(v) + weight_decay * w). Where gradients are mostly noise,
// m/sqrt(v) is close to normal with a spread of sqrt((1 - beta1)/(1 + beta1)) = 0.23, and changes
// slowly: here an element keeps its draw for 16 steps, and a sixteenth of them draw anew in each
// step, which remembers about as long as beta1 = 0.9. Weights are the masters, rounded to bf16.
// What changes is thereby what changes in training: P(change) halves with each binade, nearly all
// steps are one ULP. A master exactly between two bf16 values is put one fp32 ULP beside it, so
// that a weight and 16 low bits say all of it. Everything follows from (seed, index, step): any
// thread may do any part.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "wisp/schema.hpp"

namespace wisp::simulation {

struct SimulatedTensor {
    TensorInfo info;
    float scale = 0;
};

/// Qwen3-0.6B, which has 28 layers; ascending by name, as a Schema is.
std::vector<SimulatedTensor> qwen3_tensors(unsigned layers);

struct AdamW {
    float learning_rate = 1e-6F;
    float weight_decay = 0.01F;
    float ratio_spread = 0.22F;  // of m / sqrt(v)
};

/// Which elements: `first` counts in the tensor that `seed` stands for.
struct Stretch {
    std::uint64_t seed = 0;
    std::uint64_t first = 0;
};

void draw_masters(const Stretch& at, float scale, std::span<float> masters);
/// Step after step, each from what the one before left.
void step_masters(const Stretch& at, const AdamW& optimizer, std::uint64_t step,
                  std::span<float> masters);
/// The same where a master is its weight and the 16 bits that rounding took: half the memory.
/// Overwrites `low`; `next_weights` are the masters moved and rounded.
void step_split_masters(const Stretch& at, const AdamW& optimizer, std::uint64_t step,
                        std::span<const std::uint16_t> weights, std::span<std::uint16_t> low,
                        std::span<std::uint16_t> next_weights);
/// The 16 bits that rounding takes.
void keep_low_bits(std::span<const float> masters, std::span<std::uint16_t> low);
/// To nearest, ties to even.
void round_masters(std::span<const float> masters, std::span<std::uint16_t> weights);

/// Two consecutive states, for benchmarks that need no more.
void fill_pair(const Stretch& at, float scale, const AdamW& optimizer,
               std::span<std::uint16_t> old_state, std::span<std::uint16_t> new_state);

/// For masters that are no NaN.
inline std::uint16_t round_to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace wisp::simulation
