#include "store/s3/rate_pacer.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace wisp {
namespace {

/// A tenth of what the smallest account has.
constexpr std::uint64_t kPlenty = 100;
constexpr std::int64_t kLongestPauseMs = 10'000;
constexpr std::uint64_t kLongestWindow = 3600;

/// The value of ";<name>=<number>" in one item of the header.
std::optional<std::uint64_t> parameter(std::string_view item, std::string_view name) {
    const std::string mark = ";" + std::string(name) + "=";
    const std::size_t at = item.find(mark);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view digits = item.substr(at + mark.size());
    std::uint64_t value = 0;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (problem != std::errc() || end == digits.data()) return std::nullopt;
    return value;
}

}  // namespace

std::optional<RateLimit> parse_rate_limit(std::string_view header) {
    std::optional<RateLimit> least;
    std::string plain;
    for (const char c : header) {
        if (c != ' ' && c != '\t') plain += c;
    }
    for (std::string_view rest = plain; !rest.empty();) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        const auto remaining = parameter(rest.substr(0, comma), "r");
        const auto reset = parameter(rest.substr(0, comma), "t");
        if (remaining && reset && (!least || *remaining < least->remaining)) {
            least = RateLimit{*remaining, std::min(*reset, kLongestWindow)};
        }
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return least;
}

void RatePacer::note(std::string_view header, std::int64_t now_ms) {
    const auto limit = parse_rate_limit(header);
    if (!limit) return;
    const std::lock_guard lock(mutex_);
    remaining_ = limit->remaining;
    resets_ms_ = now_ms + static_cast<std::int64_t>(limit->reset_seconds) * 1000;
}

Milliseconds RatePacer::pause(std::int64_t now_ms) {
    const std::lock_guard lock(mutex_);
    if (resets_ms_ <= now_ms || remaining_ >= kPlenty) return Milliseconds(0);
    const std::int64_t left_ms = resets_ms_ - now_ms;
    return Milliseconds(
        std::min(left_ms / static_cast<std::int64_t>(remaining_ + 1), kLongestPauseMs));
}

}  // namespace wisp
