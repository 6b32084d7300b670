#include "demo_model.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace wisp::cli {

Result<DemoModel> DemoModel::make(unsigned layers, float learning_rate) {
    DemoModel model;
    model.tensors = simulation::qwen3_tensors(layers);
    model.optimizer.learning_rate = learning_rate;
    std::vector<TensorInfo> infos;
    std::uint64_t first = 0;
    for (const simulation::SimulatedTensor& tensor : model.tensors) {
        infos.push_back(tensor.info);
        model.first_elements.push_back(first);
        first += element_count_of(tensor.info);
    }
    auto schema = Schema::make(std::move(infos));
    if (!schema) return std::unexpected(std::move(schema).error());
    model.schema = std::move(*schema);
    return model;
}

std::vector<ModelPiece> pieces_of(const DemoModel& model) {
    std::vector<ModelPiece> pieces;
    for (std::size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
        const std::uint64_t count = element_count_of(model.tensors[tensor].info);
        for (std::uint64_t first = 0; first < count; first += kPieceElements) {
            pieces.push_back({tensor, first, std::min(kPieceElements, count - first)});
        }
    }
    return pieces;
}

std::span<const std::uint16_t> weights_of(const Weights& weights, const ModelPiece& piece) {
    const auto bytes = weights.bytes(piece.tensor);
    const auto* const first = reinterpret_cast<const std::uint16_t*>(bytes.data());
    return {first + piece.first_element, static_cast<std::size_t>(piece.element_count)};
}

void on_threads(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work) {
    if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::exception_ptr thrown;
    const auto take = [&] {
        try {
            for (std::size_t i = next++; i < count; i = next++) work(i);
        } catch (const std::exception&) {
            const std::lock_guard lock(mutex);
            thrown = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> others;
        for (unsigned i = 1; i < threads; ++i) others.emplace_back(take);
        take();
    }
    // Of a thread it would end the process without a word; here it is told.
    if (thrown) std::rethrow_exception(thrown);
}

}  // namespace wisp::cli
