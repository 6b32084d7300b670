// Times as S3 writes them, to milliseconds since 1970; nothing when they are not understood.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wisp {

/// 2026-05-17T15:09:54Z, with or without a fraction of a second.
std::optional<std::int64_t> parse_iso_time(std::string_view text);

/// Sun, 17 May 2026 15:09:54 GMT
std::optional<std::int64_t> parse_http_date(std::string_view text);

}  // namespace wisp
