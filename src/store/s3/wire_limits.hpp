// The limits of base/limits.hpp that only credentials need.
#pragma once

#include <cstdint>

namespace wisp::limits {

inline constexpr std::uint64_t kCredentialBytes = 1024 * 1024;  // a file or an answer

}  // namespace wisp::limits
