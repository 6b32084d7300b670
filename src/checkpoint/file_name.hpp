// Which names of files are taken over from one machine to another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace wisp {

/// Whether `name` may become the name of a file inside a checkpoint folder: [A-Za-z0-9._-], not
/// hidden, at most 200 bytes.
inline bool is_file_name(std::string_view name) {
    constexpr std::size_t kLongest = 200;
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= kLongest && name.front() != '.' &&
           std::ranges::all_of(name, is_plain);
}

}  // namespace wisp
