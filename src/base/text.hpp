// Foreign text made fit for a terminal, a log line or an error.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace wisp {

/// Quoted and printable, and cut when it is long.
std::string shown(std::string_view foreign);

bool is_valid_utf8(std::string_view text);

std::string to_hex(std::string_view bytes);
/// Fills `into` from exactly as many lower-case digits; false when `text` is anything else.
bool from_hex(std::string_view text, std::span<std::byte> into);

}  // namespace wisp
