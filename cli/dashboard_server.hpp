// The dashboard over HTTP: one page, and the answers it asks for. Reads only.
#pragma once

#include <functional>
#include <string>

#include "watched_runs.hpp"

namespace wisp::cli {

struct Listening {
    std::string host;
    int port = 0;  // 0: any that is free
};

/// Serves until the process is interrupted. `on_ready` is told the port when the page can be
/// opened. kConflict when the port is taken: no two programs ever share one.
Result<void> serve_dashboard(WatchedRuns& runs, const Listening& at,
                             const std::function<void(int)>& on_ready);

/// Whether only this machine reaches it.
bool is_loopback(const std::string& host);

}  // namespace wisp::cli
