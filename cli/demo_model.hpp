// The model of a demo, and how its parts are shared out among threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "simulated_training.hpp"
#include "wisp/wisp.hpp"

namespace wisp::cli {

/// What is trained, where each tensor begins when all lie one after the other, and how.
struct DemoModel {
    std::vector<simulation::SimulatedTensor> tensors;
    Schema schema;
    std::vector<std::uint64_t> first_elements;
    simulation::AdamW optimizer;

    static Result<DemoModel> make(unsigned layers, float learning_rate);
};

/// A stretch of one tensor, as publishers take them.
struct ModelPiece {
    std::size_t tensor = 0;
    std::uint64_t first_element = 0;
    std::uint64_t element_count = 0;
};
/// All of the model, in order.
std::vector<ModelPiece> pieces_of(const DemoModel& model);

/// The weights of a piece: bf16, where `weights` holds them.
std::span<const std::uint16_t> weights_of(const Weights& weights, const ModelPiece& piece);

/// Calls work(index) for every index below `count`, on `threads` threads (0: one per core).
void on_threads(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work);

}  // namespace wisp::cli
