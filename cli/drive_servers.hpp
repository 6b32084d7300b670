// `wisp follow RUN --vllm URL`: servers brought to each new step of a run, without weights here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "output.hpp"
#include "run_options.hpp"

namespace wisp::cli {

struct DriveArguments {
    std::vector<std::string> vllm;
    std::vector<std::string> sglang;
    std::string requests = "keep";
    Milliseconds timeout{300'000};
    std::string api_key;

    bool any() const { return !vllm.empty() || !sglang.empty(); }
};

/// --vllm, --sglang and what goes with them.
void add_servers(Command& verb, DriveArguments& into);
/// A usage error when an option was given that only a folder, or only servers, have a use for.
void check_drive_usage(const Command& verb, const DriveArguments& servers);

struct DriveOrder {
    Common common;
    std::string run;
    TrustArguments trust;
    bool once = false;
    std::optional<std::uint64_t> until_step;
    Milliseconds poll{1000};
    std::string metrics;
    std::string log;
};

/// Returns the exit code.
int drive_servers(const DriveOrder& order, const DriveArguments& servers);

}  // namespace wisp::cli
