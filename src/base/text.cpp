#include "base/text.hpp"

#include "wisp/result.hpp"

#include <cstddef>
#include <cstdint>

namespace wisp {
namespace {

constexpr std::size_t kLongestShown = 160;
constexpr char kHexDigits[] = "0123456789abcdef";

/// Length of the well-formed sequence at the front of `text`, 0 if there is none.
std::size_t sequence_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const auto tail = [&](std::size_t i, std::uint8_t low, std::uint8_t high) {
        return i < text.size() && byte(i) >= low && byte(i) <= high;
    };
    const std::uint8_t first = byte(0);
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) return tail(1, 0x80, 0xBF) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        const std::uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
        const std::uint8_t high = first == 0xED ? 0x9F : 0xBF;
        return tail(1, low, high) && tail(2, 0x80, 0xBF) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const std::uint8_t low = first == 0xF0 ? 0x90 : 0x80;
        const std::uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
        return tail(1, low, high) && tail(2, 0x80, 0xBF) && tail(3, 0x80, 0xBF) ? 4 : 0;
    }
    return 0;
}

bool is_control(std::string_view sequence) {
    const auto first = static_cast<std::uint8_t>(sequence[0]);
    if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
    // C1 controls (U+0080 to U+009F) also steer terminals.
    return sequence.size() == 2 && first == 0xC2 && static_cast<std::uint8_t>(sequence[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view foreign) {
    std::string text;
    while (!foreign.empty()) {
        const std::size_t length = sequence_length(foreign);
        const std::size_t taken = length == 0 ? 1 : length;
        if (length == 0 || is_control(foreign.substr(0, length))) {
            for (std::size_t i = 0; i < taken; ++i) {
                text += "\\x";
                text += to_hex(foreign.substr(i, 1));
            }
        } else {
            text += foreign.substr(0, length);
        }
        foreign.remove_prefix(taken);
    }
    return text;
}

std::string shown(std::string_view foreign) {
    if (foreign.size() <= kLongestShown) return "'" + printable(foreign) + "'";
    return "'" + printable(foreign.substr(0, kLongestShown)) + "…'";
}

bool is_valid_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string to_hex(std::string_view bytes) {
    std::string hex;
    hex.reserve(bytes.size() * 2);
    for (const char c : bytes) {
        const auto byte = static_cast<std::uint8_t>(c);
        hex += kHexDigits[byte >> 4];
        hex += kHexDigits[byte & 15];
    }
    return hex;
}

bool from_hex(std::string_view text, std::span<std::byte> into) {
    if (text.size() != 2 * into.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const std::size_t digit = std::string_view(kHexDigits).find(text[i]);
        if (digit == std::string_view::npos) return false;
        into[i / 2] = static_cast<std::byte>(static_cast<unsigned>(into[i / 2]) << 4 | digit);
    }
    return true;
}

}  // namespace wisp
