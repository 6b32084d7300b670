// usage: fuzz_replay TARGET FOLDER...
// Runs a fuzz target over every file of the folders given, in order of name. Where the target tells
// what became of its inputs, those that fare otherwise than their names say are a failure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "outcome.hpp"
#include "replay_target.hpp"

using wisp::fuzz::Outcome;

int main(int argc, char** argv) {
    const auto target =
        std::ranges::find(kReplayTargets, argc > 1 ? argv[1] : "", &ReplayTarget::name);
    if (target == kReplayTargets.end()) {
        std::fputs("there is no such target\n", stderr);
        return 2;
    }
    std::vector<std::filesystem::path> inputs;
    for (int i = 2; i < argc; ++i) {
        for (const auto& item : std::filesystem::directory_iterator(argv[i])) {
            if (item.is_regular_file()) inputs.push_back(item.path());
        }
    }
    std::ranges::sort(inputs);
    std::size_t surprises = 0;
    for (const auto& path : inputs) {
        std::ifstream in(path, std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(in)), {});
        // Copied to its exact size, so that a sanitizer sees every byte read past the end.
        const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
        std::fprintf(stderr, "%s\n", path.filename().c_str());
        wisp::fuzz::outcome = Outcome::kUnsaid;
        target->run(input.data(), input.size());
        const bool bad = path.filename().string().starts_with("bad_");
        if (wisp::fuzz::outcome != (bad ? Outcome::kTaken : Outcome::kRefused)) continue;
        std::fprintf(stderr, bad ? "is taken, other than its name says\n"
                                 : "is refused: make it anew, or name it bad_\n");
        ++surprises;
    }
    std::printf("%zu inputs\n", inputs.size());
    if (inputs.empty()) std::fputs("there is nothing to replay\n", stderr);
    return inputs.empty() || surprises != 0 ? 1 : 0;
}
