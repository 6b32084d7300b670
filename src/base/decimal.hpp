// Numbers in foreign text.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace wisp {

/// The number that `text` is, written in decimal digits and nothing else; nothing when it does not
/// fit.
inline std::optional<std::uint64_t> whole_number(std::string_view text) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, problem] = std::from_chars(text.data(), end, value);
    if (problem != std::errc() || stopped != end) return std::nullopt;
    return value;
}

}  // namespace wisp
