#include "wisp/state.hpp"

#include <fmt/format.h>

#include <charconv>

namespace wisp {

std::string to_text(const StateDigest& digest) {
    return fmt::format("{:016x}{:016x}", digest.a, digest.b);
}

std::optional<StateDigest> parse_digest(std::string_view text) {
    if (text.size() != 32) return std::nullopt;
    for (const char c : text) {
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return std::nullopt;
    }
    StateDigest digest;
    const char* const middle = text.data() + 16;
    std::from_chars(text.data(), middle, digest.a, 16);
    std::from_chars(middle, middle + 16, digest.b, 16);
    return digest;
}

}  // namespace wisp
