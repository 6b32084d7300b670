// What a terminal can do that a file or a pipe cannot: colours and a pager.
#pragma once

#include <functional>
#include <string>

#include "output.hpp"

namespace wisp::cli {

enum class Colour { kBold, kDim, kRed, kGreen, kYellow };

/// In that colour where the stream is a terminal that has any, and NO_COLOR is not set. Colour
/// never says anything that the text does not. Pad first: a colour has letters too.
std::string coloured(Colour colour, const std::string& text);
std::string coloured_on_stderr(Colour colour, const std::string& text);

/// What `print` prints is shown by a pager, if stdout is a terminal: $WISP_PAGER, $PAGER, or less,
/// which shows at once what fits. "cat", or nothing, is none. Returns when the pager has been left;
/// what was not looked at by then is no failure. Ctrl-C meanwhile is for the pager alone.
void show_paged(const Common& common, const std::function<void()>& print);

}  // namespace wisp::cli
