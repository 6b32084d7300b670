#include "store/s3/wire_time.hpp"

#include <curl/curl.h>

#include <charconv>
#include <chrono>
#include <string>

namespace wisp {
namespace {

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
        if (rest[0] != '.' || rest.size() < 2) return std::nullopt;
        const std::string padded = std::string(rest.substr(1)) + "00";
        const auto thousandths = digits(padded, 0, 3);
        if (!thousandths) return std::nullopt;
        fraction_ms = *thousandths;
    }
    const sys_seconds when = sys_days(date) + hours(*hour) + minutes(*minute) + seconds(*second);
    return duration_cast<milliseconds>(when.time_since_epoch()).count() + fraction_ms;
}

std::optional<std::int64_t> parse_http_date(std::string_view text) {
    if (text.empty() || text.size() > 64) return std::nullopt;
    const std::time_t when = curl_getdate(std::string(text).c_str(), nullptr);
    if (when < 0) return std::nullopt;
    return static_cast<std::int64_t>(when) * 1000;
}

}  // namespace wisp
