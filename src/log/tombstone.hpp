// What stands in a slot whose commit was given up by retention: doc/protocol.md section 3.4.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wisp {

struct Tombstone {
    std::string run;
    std::uint64_t seq = 0;
    std::uint64_t floor = 0;  // that gave it up
};

std::string write_tombstone(const Tombstone& tombstone);
/// Nothing when the object is something else.
std::optional<Tombstone> parse_tombstone(std::string_view object);

}  // namespace wisp
