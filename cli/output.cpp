#include "output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace wisp::cli {
namespace {

std::int64_t now_nanoseconds() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

bool shows_progress(const Common& common) {
    return !common.quiet && ::isatty(STDERR_FILENO) == 1;
}

}  // namespace

int exit_code(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::kUnavailable: return 5;
        case ErrorKind::kConflict:
        case ErrorKind::kFenced: return 11;
        case ErrorKind::kDenied: return 12;
        case ErrorKind::kCorrupt: return 13;
        case ErrorKind::kWrongBase:
        case ErrorKind::kForked: return 14;
        case ErrorKind::kNoRun: return 10;
        case ErrorKind::kGap: return 15;
        case ErrorKind::kIncapable: return 16;
        case ErrorKind::kNoSpace: return 17;
        case ErrorKind::kUnsupported: return 18;
        case ErrorKind::kInvalid:
        case ErrorKind::kNotFound:
        case ErrorKind::kInternal: return 1;
    }
    return 1;
}

int report_error(const Common& common, const std::string& verb, const Error& error) {
    clear_progress(common);
    if (common.json) {
        print_json({{"verb", verb},
                    {"ok", false},
                    {"error", name_of(error.kind)},
                    {"message", error.text},
                    {"exit_code", exit_code(error.kind)}});
    }
    fmt::print(stderr, "wisp {}: {}\n", verb, error.text);
    return exit_code(error.kind);
}

Progress progress_bar(const Common& common) {
    if (!shows_progress(common)) return {};
    const auto last = std::make_shared<std::int64_t>(0);
    return [last](std::string_view phase, std::uint64_t done, std::uint64_t total) {
        const std::int64_t now = now_nanoseconds();
        if (now - *last < 50'000'000 && done != total) return;
        *last = now;
        const double share =
            total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
        fmt::print(stderr, "\r\033[K{:8} {} {:3.0f} %  {} of {}", phase, bar(share, 30),
                   100 * share, human_bytes(done), human_bytes(total));
        std::fflush(stderr);
    };
}

void clear_progress(const Common& common) {
    if (!shows_progress(common)) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
}

std::string human_bytes(std::uint64_t bytes) {
    constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1000 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

double ratio(std::uint64_t x, std::uint64_t y) {
    return y == 0 ? 0.0 : static_cast<double>(x) / static_cast<double>(y);
}

std::string human_count(std::uint64_t count) {
    std::string digits = std::to_string(count);
    for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
        digits.insert(static_cast<std::size_t>(at), ",");
    }
    return digits;
}

std::string human_seconds(double seconds) {
    return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1000)
                       : fmt::format("{:.2f} s", seconds);
}

std::string bar(double share, unsigned width) {
    const auto filled = static_cast<unsigned>(std::lround(std::clamp(share, 0.0, 1.0) * width));
    std::string text;
    for (unsigned i = 0; i < width; ++i) text += i < filled ? "■" : "·";
    return text;
}

void print_json(const nlohmann::ordered_json& value) {
    fmt::print("{}\n", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Stopwatch::Stopwatch() : start_(now_nanoseconds()) {}

double Stopwatch::seconds() const {
    return static_cast<double>(now_nanoseconds() - start_) * 1e-9;
}

}  // namespace wisp::cli
