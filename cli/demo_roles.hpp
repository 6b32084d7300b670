// The processes of a demo: what each does, and what it tells the parent, as JSON lines.
//
// They share the bucket and nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "demo_model.hpp"
#include "wisp/wisp.hpp"

namespace wisp::cli {

using Tell = std::function<void(const nlohmann::ordered_json&)>;

struct DemoRole {
    const DemoModel* model = nullptr;
    std::string run;
    std::filesystem::path folder;  // its own
    std::uint64_t last_step = 0;
    unsigned threads = 0;
};

/// Starts the run, publishes step 0 as an anchor, waits, then trains and publishes to the last
/// step. What it has published lies in its folder.
Result<void> run_demo_trainer(const DemoRole& role, const std::function<void()>& wait,
                              const Tell& tell);

/// Joins by an anchor and follows to the last step; its weights lie in its folder.
Result<void> run_demo_follower(const DemoRole& role, const Tell& tell);

}  // namespace wisp::cli
