// A run as one picture: figures, bytes of each step, and the share of each layer that changed.
#pragma once

#include <filesystem>

#include "run_view.hpp"

namespace wisp::cli {

/// `everything` is RunView::everything(). Writes a PNG; kDenied or kNoSpace when it cannot.
Result<void> draw_report(const Json& everything, const std::filesystem::path& png);

}  // namespace wisp::cli
