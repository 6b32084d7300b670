// Foreign text made fit for a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace wisp {

/// Escapes control characters (C0, DEL, C1) and broken UTF-8 as \\xNN.
std::string printable(std::string_view foreign);

}  // namespace wisp
