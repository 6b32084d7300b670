#include "simulated_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

// The loops are plain, and compiled once per instruction set; sanitizers run before the choice can
// be made.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define WISP_EACH_TARGET __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WISP_EACH_TARGET
#endif

namespace wisp::simulation {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;  // one pair of keys per chunk
constexpr std::uint32_t kMemory = 16;  // steps for which an element keeps its draw

std::uint64_t scramble(std::uint64_t x) {  // splitmix64
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

struct Keys {
    std::uint32_t first;
    std::uint32_t second;
};

Keys keys_of(std::uint64_t seed, std::uint64_t chunk, std::uint64_t purpose) {
    const std::uint64_t bits = scramble(scramble(scramble(seed) + chunk) + purpose);
    return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}

/// A counter in, 32 random bits out, by operations that every vector unit has.
inline std::uint32_t mix(std::uint32_t counter, std::uint32_t first, std::uint32_t second) {
    std::uint32_t x = counter * 0x9E3779B9U + first;
    x = (x ^ (x >> 16)) * 0x21F0AAADU + second;
    x = (x ^ (x >> 15)) * 0x735A2D97U;
    return x ^ (x >> 15);
}

inline std::uint32_t byte_sum(std::uint32_t x) {
    x = (x & 0x00FF00FFU) + ((x >> 8) & 0x00FF00FFU);
    return (x + (x >> 16)) & 0xFFFFU;
}

inline float beside_tie(float master) {
    const auto bits = std::bit_cast<std::uint32_t>(master);
    return std::bit_cast<float>(bits | ((bits & 0xFFFFU) == 0x8000U ? 1U : 0U));
}

inline float join(std::uint16_t weight, std::uint16_t low) {
    // What was above the half was rounded up, and nothing is at the half.
    const std::uint32_t high = weight - (low > 0x8000U ? 1U : 0U);
    return std::bit_cast<float>(high << 16 | low);
}

struct Window {
    Keys now;
    Keys next;
    std::uint32_t phase;
    float ratio_step;
    float decay_step;
};

inline float moved(const Window& window, std::uint32_t at, float master) {
    const bool renewed = at % kMemory + window.phase >= kMemory;
    const std::uint32_t sum = byte_sum(mix(at, renewed ? window.next.first : window.now.first,
                                           renewed ? window.next.second : window.now.second));
    const float ratio = static_cast<float>(static_cast<std::int32_t>(sum)) - 510.0F;
    return beside_tie(master - (window.ratio_step * ratio + window.decay_step * master));
}

WISP_EACH_TARGET
void draw_chunk(Keys a, Keys b, Keys c, std::uint32_t first, std::uint32_t count, float scale,
                float* masters) {
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t sum = byte_sum(mix(first + i, a.first, a.second)) +
                                  byte_sum(mix(first + i, b.first, b.second));
        // A sum of eight bytes is close to normal, but coarse: a uniform part below the spacing of
        // bf16 refines it.
        const auto fine = static_cast<std::int32_t>(mix(first + i, c.first, c.second) >> 8);
        const float coarse =
            (static_cast<float>(static_cast<std::int32_t>(sum)) - 1020.0F) * (1.0F / 209.0F);
        masters[i] =
            beside_tie(scale * (coarse + static_cast<float>(fine) * (1.0F / 16777216.0F / 104.0F)));
    }
}

WISP_EACH_TARGET
void step_chunk(const Window window, std::uint32_t first, std::uint32_t count, float* masters) {
    for (std::uint32_t i = 0; i < count; ++i) {
        masters[i] = moved(window, first + i, masters[i]);
    }
}

WISP_EACH_TARGET
void step_split_chunk(const Window window, std::uint32_t first, std::uint32_t count,
                      const std::uint16_t* __restrict weights, std::uint16_t* __restrict low,
                      std::uint16_t* __restrict next_weights) {
    for (std::uint32_t i = 0; i < count; ++i) {
        const float master = moved(window, first + i, join(weights[i], low[i]));
        next_weights[i] = round_to_bf16(master);
        low[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(master));
    }
}

WISP_EACH_TARGET
void round_chunk(const float* masters, std::uint64_t count, std::uint16_t* weights) {
    for (std::uint64_t i = 0; i < count; ++i) weights[i] = round_to_bf16(masters[i]);
}

Window window_of(std::uint64_t seed, std::uint64_t chunk, const AdamW& optimizer,
                 std::uint64_t step) {
    constexpr float kSpreadOfSum = 147.8F;  // of four bytes
    constexpr std::uint64_t kDraws = 16;    // purposes above those of draw_masters
    const std::uint64_t number = kDraws + step / kMemory;
    return {keys_of(seed, chunk, number), keys_of(seed, chunk, number + 1),
            static_cast<std::uint32_t>(step % kMemory),
            optimizer.learning_rate * optimizer.ratio_spread / kSpreadOfSum,
            optimizer.learning_rate * optimizer.weight_decay};
}

/// Calls act(chunk, first element in it, offset, count) for each chunk a stretch touches.
template <class Act>
void by_chunk(std::uint64_t first, std::uint64_t count, Act act) {
    for (std::uint64_t done = 0; done < count;) {
        const std::uint64_t at = first + done;
        const std::uint64_t size = std::min(count - done, kChunk - at % kChunk);
        act(at / kChunk, static_cast<std::uint32_t>(at % kChunk), done,
            static_cast<std::uint32_t>(size));
        done += size;
    }
}

}  // namespace

std::vector<SimulatedTensor> qwen3_tensors(unsigned layers) {
    std::vector<SimulatedTensor> tensors;
    const auto add = [&](std::string name, std::vector<std::uint64_t> shape, float scale) {
        tensors.push_back({{std::move(name), Dtype::kBf16, std::move(shape)}, scale});
    };
    add("model.embed_tokens.weight", {151936, 1024}, 0.03F);
    for (unsigned layer = 0; layer < layers; ++layer) {
        const std::string at = fmt::format("model.layers.{}.", layer);
        add(at + "input_layernorm.weight", {1024}, 1.0F);
        add(at + "mlp.down_proj.weight", {1024, 3072}, 0.035F);
        add(at + "mlp.gate_proj.weight", {3072, 1024}, 0.04F);
        add(at + "mlp.up_proj.weight", {3072, 1024}, 0.035F);
        add(at + "post_attention_layernorm.weight", {1024}, 1.0F);
        add(at + "self_attn.k_norm.weight", {128}, 1.0F);
        add(at + "self_attn.k_proj.weight", {1024, 1024}, 0.045F);
        add(at + "self_attn.o_proj.weight", {1024, 2048}, 0.04F);
        add(at + "self_attn.q_norm.weight", {128}, 1.0F);
        add(at + "self_attn.q_proj.weight", {2048, 1024}, 0.045F);
        add(at + "self_attn.v_proj.weight", {1024, 1024}, 0.04F);
    }
    add("model.norm.weight", {1024}, 1.0F);
    std::ranges::sort(tensors, {}, [](const SimulatedTensor& t) { return t.info.name; });
    return tensors;
}

void draw_masters(const Stretch& at, float scale, std::span<float> masters) {
    by_chunk(
        at.first, masters.size(),
        [&](std::uint64_t chunk, std::uint32_t first, std::uint64_t offset, std::uint32_t count) {
            draw_chunk(keys_of(at.seed, chunk, 1), keys_of(at.seed, chunk, 2),
                       keys_of(at.seed, chunk, 3), first, count, scale, masters.data() + offset);
        });
}

void step_masters(const Stretch& at, const AdamW& optimizer, std::uint64_t step,
                  std::span<float> masters) {
    by_chunk(
        at.first, masters.size(),
        [&](std::uint64_t chunk, std::uint32_t first, std::uint64_t offset, std::uint32_t count) {
            step_chunk(window_of(at.seed, chunk, optimizer, step), first, count,
                       masters.data() + offset);
        });
}

void step_split_masters(const Stretch& at, const AdamW& optimizer, std::uint64_t step,
                        std::span<const std::uint16_t> weights, std::span<std::uint16_t> low,
                        std::span<std::uint16_t> next_weights) {
    by_chunk(
        at.first, weights.size(),
        [&](std::uint64_t chunk, std::uint32_t first, std::uint64_t offset, std::uint32_t count) {
            step_split_chunk(window_of(at.seed, chunk, optimizer, step), first, count,
                             weights.data() + offset, low.data() + offset,
                             next_weights.data() + offset);
        });
}

void keep_low_bits(std::span<const float> masters, std::span<std::uint16_t> low) {
    for (std::size_t i = 0; i < masters.size(); ++i) {
        low[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(masters[i]));
    }
}

void round_masters(std::span<const float> masters, std::span<std::uint16_t> weights) {
    round_chunk(masters.data(), masters.size(), weights.data());
}

void fill_pair(const Stretch& at, float scale, const AdamW& optimizer,
               std::span<std::uint16_t> old_state, std::span<std::uint16_t> new_state) {
    std::array<float, 4096> masters;
    for (std::size_t done = 0; done < old_state.size(); done += masters.size()) {
        const std::size_t size = std::min(masters.size(), old_state.size() - done);
        const Stretch here{at.seed, at.first + done};
        const std::span<float> some(masters.data(), size);
        draw_masters(here, scale, some);
        round_masters(some, old_state.subspan(done, size));
        step_masters(here, optimizer, 1, some);
        round_masters(some, new_state.subspan(done, size));
    }
}

}  // namespace wisp::simulation
