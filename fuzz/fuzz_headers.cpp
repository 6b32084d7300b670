// Any text as a header that a store answers with: Content-Range, Retry-After, RateLimit, and dates.
// What is understood lies in range, and written the way it is written in headers means the same.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "fuzz_input.hpp"
#include "store/s3/rate_pacer.hpp"
#include "store/s3/wire_range.hpp"
#include "store/s3/wire_time.hpp"

using namespace wisp;

namespace {

constexpr std::int64_t kYear10000Ms = 253'402'300'800'000;

void check_range(std::string_view text) {
    const auto range = parse_content_range(text);
    if (!range) return;
    const std::string total = range->total ? fmt::format("{}", *range->total) : "*";
    if (!range->first) {
        FUZZ_CHECK(range->total && range->length == 0);
        FUZZ_CHECK(parse_content_range("bytes */" + total)->total == range->total);
        return;
    }
    std::uint64_t end = 0;
    FUZZ_CHECK(range->length > 0);
    FUZZ_CHECK(!__builtin_add_overflow(*range->first, range->length, &end));
    FUZZ_CHECK(end <= range->total.value_or(end));
    const auto again =
        parse_content_range(fmt::format("bytes {}-{}/{}", *range->first, end - 1, total));
    FUZZ_CHECK(again && again->first == range->first && again->length == range->length &&
               again->total == range->total);
}

void check_times(std::string_view text) {
    if (const auto ms = parse_http_date(text)) {
        FUZZ_CHECK(*ms > 0 && *ms < kYear10000Ms && *ms % 1000 == 0);
        const auto again = fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(*ms / 1000));
        FUZZ_CHECK(parse_http_date(again) == ms);
    }
    if (const auto ms = parse_iso_time(text)) {
        FUZZ_CHECK(*ms > 0 && *ms < kYear10000Ms);
        const auto again =
            fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(*ms / 1000), *ms % 1000);
        FUZZ_CHECK(parse_iso_time(again) == ms);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_range(text);
    check_times(text);
    for (const char* date :
         {"", "Fri, 15 Jan 2027 08:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"}) {
        if (const auto wait = parse_retry_after(text, date)) FUZZ_CHECK(*wait <= 3600);
        if (const auto wait = parse_retry_after(date, text)) FUZZ_CHECK(*wait <= 3600);
    }
    if (const auto limit = parse_rate_limit(text)) {
        FUZZ_CHECK(limit->reset_seconds <= 3600);
        const auto again = parse_rate_limit(
            fmt::format("\"api\";r={};t={}", limit->remaining, limit->reset_seconds));
        FUZZ_CHECK(again && again->remaining == limit->remaining &&
                   again->reset_seconds == limit->reset_seconds);
        RatePacer pacer;
        pacer.note(text, 1'800'000'000'000);
        const auto pause = pacer.pause(1'800'000'000'000).count();
        FUZZ_CHECK(pause >= 0 && pause <= 10'000);
    }
    return 0;
}
