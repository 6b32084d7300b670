// Writes two consecutive checkpoints in the shape of Qwen3-0.6B, moved as AdamW moves weights.
//
//   wisp_make_pair FOLDER [LAYERS] [RATE]     old.safetensors and new.safetensors
//
// 28 layers by default, moved by one step at a learning rate of 1e-6.
//
// bench/simulated_training.hpp documents how the weights are made.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "checkpoint/safetensors.hpp"
#include "simulated_training.hpp"

namespace {

using namespace wisp;

void fail_with(const Error& error) {
    fmt::print(stderr, "wisp_make_pair: {}\n", error.text);
    std::exit(1);
}

template <class T>
T value_of(Result<T> result) {
    if (!result) fail_with(result.error());
    return std::move(*result);
}

PendingFile start_file(const std::filesystem::path& path,
                       const std::vector<SafetensorsEntry>& entries) {
    PendingFile file = value_of(PendingFile::create(path));
    const Bytes header = write_safetensors_header(entries, {{"format", "pt"}});
    if (auto done = file.reserve(header.size() + entries.back().end); !done)
        fail_with(done.error());
    if (auto done = file.append(header); !done) fail_with(done.error());
    return file;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: wisp_make_pair FOLDER [LAYERS] [RATE]\n");
        return 2;
    }
    const std::filesystem::path folder = argv[1];
    const auto layers = static_cast<unsigned>(argc > 2 ? std::stoul(argv[2]) : 28);
    simulation::AdamW optimizer;
    if (argc > 3) optimizer.learning_rate = std::stof(argv[3]);
    const auto parts = simulation::qwen3_tensors(layers);
    std::vector<SafetensorsEntry> entries;
    std::uint64_t offset = 0;
    for (const simulation::SimulatedTensor& part : parts) {
        const std::uint64_t bytes = value_of(byte_count_of(part.info));
        entries.push_back({part.info, offset, offset + bytes});
        offset += bytes;
    }
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    PendingFile old_file = start_file(folder / "old.safetensors", entries);
    PendingFile new_file = start_file(folder / "new.safetensors", entries);

    constexpr std::size_t kPiece = std::size_t{1} << 22;
    const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::uint16_t> old_state(kPiece);
    std::vector<std::uint16_t> new_state(kPiece);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::uint64_t count = element_count_of(parts[i].info);
        for (std::uint64_t first = 0; first < count; first += kPiece) {
            const auto size =
                static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, count - first));
            {
                std::vector<std::jthread> workers;
                for (unsigned t = 0; t < threads; ++t) {
                    const std::size_t begin = size * t / threads;
                    const std::size_t end = size * (t + 1) / threads;
                    workers.emplace_back([&, begin, end] {
                        simulation::fill_pair({i + 1, first + begin}, parts[i].scale, optimizer,
                                              {old_state.data() + begin, end - begin},
                                              {new_state.data() + begin, end - begin});
                    });
                }
            }
            for (auto [file, state] :
                 {std::pair(&old_file, &old_state), std::pair(&new_file, &new_state)}) {
                const auto bytes = std::as_bytes(std::span(state->data(), size));
                if (auto done = file->append(bytes); !done) fail_with(done.error());
            }
        }
    }
    if (auto done = old_file.commit(); !done) fail_with(done.error());
    if (auto done = new_file.commit(); !done) fail_with(done.error());
    return 0;
}
