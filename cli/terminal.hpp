// What a terminal can do that a file or a pipe cannot: colours and a pager.
#pragma once

#include <sys/types.h>

#include <string>

#include "output.hpp"

namespace wisp::cli {

enum class Colour { kBold, kDim, kRed, kGreen, kYellow };

/// In that colour where the stream is a terminal that has any, and NO_COLOR is not set. Colour
/// never says anything that the text does not. Pad first: a colour has letters too.
std::string coloured(Colour colour, const std::string& text);
std::string coloured_on_stderr(Colour colour, const std::string& text);

/// While it stands, what is printed is shown by a pager, if stdout is a terminal: $WISP_PAGER,
/// $PAGER, or less, which shows at once what fits. "cat", or nothing, is none.
class Pager {
  public:
    explicit Pager(const Common& common);
    Pager(const Pager&) = delete;
    Pager& operator=(const Pager&) = delete;
    /// Waits until the reader has seen enough.
    ~Pager();

  private:
    pid_t reader_ = -1;
    int terminal_ = -1;  // what stdout was
};

}  // namespace wisp::cli
