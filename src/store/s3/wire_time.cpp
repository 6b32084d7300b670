#include "store/s3/wire_time.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "base/decimal.hpp"

namespace wisp {
namespace {

constexpr std::int64_t kYear10000Ms = 253'402'300'800'000;
constexpr std::uint64_t kLongestWait = 3600;  // in seconds

std::optional<std::int64_t> in_range(std::int64_t ms) {
    return ms > 0 && ms < kYear10000Ms ? std::optional(ms) : std::nullopt;
}

std::optional<int> digits(std::string_view text, std::size_t at, std::size_t count) {
    if (at + count > text.size()) return std::nullopt;
    int value = 0;
    for (const char c : text.substr(at, count)) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + (c - '0');
    }
    return value;
}

}  // namespace

std::optional<std::int64_t> parse_iso_time(std::string_view text) {
    using namespace std::chrono;
    constexpr std::size_t kShortest = 20;
    if (text.size() < kShortest || text.size() > 40 || text[4] != '-' || text[7] != '-' ||
        text[10] != 'T' || text[13] != ':' || text[16] != ':' || !text.ends_with('Z')) {
        return std::nullopt;
    }
    const auto year_number = digits(text, 0, 4);
    const auto month_number = digits(text, 5, 2);
    const auto day_number = digits(text, 8, 2);
    const auto hour = digits(text, 11, 2);
    const auto minute = digits(text, 14, 2);
    const auto second = digits(text, 17, 2);
    if (!year_number || !month_number || !day_number || !hour || !minute || !second) {
        return std::nullopt;
    }
    const year_month_day date{year(*year_number), month(static_cast<unsigned>(*month_number)),
                              day(static_cast<unsigned>(*day_number))};
    if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
    int fraction_ms = 0;
    if (const std::string_view rest = text.substr(19, text.size() - kShortest); !rest.empty()) {
        const std::string_view fraction = rest.substr(1);
        const bool all_digits = fraction.find_first_not_of("0123456789") == std::string_view::npos;
        if (rest[0] != '.' || fraction.empty() || !all_digits) return std::nullopt;
        fraction_ms = digits(std::string(fraction) + "00", 0, 3).value_or(0);
    }
    const sys_seconds when = sys_days(date) + hours(*hour) + minutes(*minute) + seconds(*second);
    return in_range(when.time_since_epoch().count() * 1000 + fraction_ms);
}

std::optional<std::int64_t> parse_http_date(std::string_view text) {
    if (text.empty() || text.size() > 64) return std::nullopt;
    const std::time_t when = curl_getdate(std::string(text).c_str(), nullptr);
    // libcurl reads years of any length.
    if (when >= kYear10000Ms / 1000) return std::nullopt;
    return in_range(static_cast<std::int64_t>(when) * 1000);
}

std::optional<std::uint64_t> parse_retry_after(std::string_view text, std::string_view date) {
    if (const auto seconds = whole_number(text)) return std::min(*seconds, kLongestWait);
    const auto until_ms = parse_http_date(text);
    const auto now_ms = parse_http_date(date);
    if (!until_ms || !now_ms) return std::nullopt;
    const std::int64_t wait_ms = std::max<std::int64_t>(0, *until_ms - *now_ms);
    return std::min(static_cast<std::uint64_t>(wait_ms) / 1000, kLongestWait);
}

}  // namespace wisp
