// A verdict as the page and `wisp status --json` show it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "wisp/verdict.hpp"

namespace wisp::cli {

/// `severity` ("ok", "warning", "critical"), `text`, and `concerns` with `severity`, `cause`,
/// `text`.
nlohmann::ordered_json verdict_json(const RunVerdict& verdict);

}  // namespace wisp::cli
