// The part of an object that an answer holds, as HTTP writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wisp {

/// "bytes 0-9/100", "bytes 0-9/*" or "bytes */100"
struct ContentRange {
    std::optional<std::uint64_t> first;  // nothing: no range of it could be given
    std::uint64_t length = 0;
    std::optional<std::uint64_t> total;  // of the object, where it is told
};

/// Nothing when it is written otherwise, or cannot be: a range ends within its object.
std::optional<ContentRange> parse_content_range(std::string_view text);

}  // namespace wisp
