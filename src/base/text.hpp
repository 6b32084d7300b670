// Foreign text made fit for a terminal, a log line or an error.
#pragma once

#include <string>
#include <string_view>

namespace wisp {

/// Quoted and printable, and cut when it is long.
std::string shown(std::string_view foreign);

bool is_valid_utf8(std::string_view text);

std::string to_hex(std::string_view bytes);

}  // namespace wisp
