// Times as S3 writes them, to milliseconds since 1970; nothing when they are not understood. A time
// that is not after the start of 1970 is how servers write that they know none, and years end with
// 9999.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wisp {

/// 2026-05-17T15:09:54Z, with or without a fraction of a second.
std::optional<std::int64_t> parse_iso_time(std::string_view text);

/// Sun, 17 May 2026 15:09:54 GMT
std::optional<std::int64_t> parse_http_date(std::string_view text);

/// The seconds that a server asks to wait: a number, or a time, which is seen from `date`, the time
/// of its answer. An hour at most.
std::optional<std::uint64_t> parse_retry_after(std::string_view text, std::string_view date);

}  // namespace wisp
