// A run as one picture: figures, bytes of each step, and the share of each layer that changed.
#pragma once

#include <string>

#include "run_view.hpp"

namespace wisp::cli {

/// `everything` is RunView::everything(). The text of an SVG.
std::string draw_report(const Json& everything);

}  // namespace wisp::cli
