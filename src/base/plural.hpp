// Numbers with their nouns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wisp {

/// "1 round", "2 rounds".
inline std::string many(std::uint64_t count, std::string_view noun) {
    return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace wisp
