// The limits of base/limits.hpp that only what speaks HTTP needs.
#pragma once

#include <cstdint>

namespace wisp::limits {

inline constexpr std::uint64_t kHttpHeaderBytes = 64 * 1024;
inline constexpr std::uint64_t kHttpAnswerBytes = 16 * 1024 * 1024;  // a page of 1,000 long keys

/// What moves more slowly for long is as good as away, and tried again on another connection.
inline constexpr std::uint64_t kSlowestBytesPerSecond = 4 * 1024;

}  // namespace wisp::limits
