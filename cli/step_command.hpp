// The user's command after each move of a replica: `wisp follow --on-step CMD`.
#pragma once

#include <filesystem>
#include <string>

#include "wisp/wisp.hpp"

namespace wisp::cli {

/// Runs `sh -c command` and waits for it. It finds WISP_STEP, WISP_SEQ, WISP_EPOCH, WISP_DIR and
/// WISP_DIGEST in its environment; with `apart`, its output goes to stderr, so that stdout stays
/// ours. Fails when it cannot be started or does not exit with 0.
Result<void> run_step_command(const std::string& command, const FollowEvent& event,
                              const std::filesystem::path& folder, bool apart);

}  // namespace wisp::cli
