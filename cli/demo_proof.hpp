// Whether everybody holds what the trainer must have, decided on the bytes themselves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "demo_model.hpp"

namespace wisp::cli {

struct DemoProof {
    std::string state;                   // the digest, taken anew
    std::uint64_t compared_weights = 0;  // of all copies
};

/// Trains again, alone and in fp32, and compares every weight that comes out with the files of the
/// trainer and of each follower, bit for bit; then compares their digest with what was
/// committed. kCorrupt names the first difference. `files` begin with the trainer's.
Result<DemoProof> prove_demo(const DemoModel& model,
                             const std::vector<std::filesystem::path>& files,
                             std::uint64_t last_step, const std::string& committed_state,
                             unsigned threads);

}  // namespace wisp::cli
