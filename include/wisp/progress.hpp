// How long work tells how far it is. Called from one thread at a time, often; must return quickly.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace wisp {

using Progress = std::function<void(std::string_view phase, std::uint64_t done_bytes,
                                    std::uint64_t total_bytes)>;

}  // namespace wisp
