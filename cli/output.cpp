#include "output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "diagnostics.hpp"

namespace wisp::cli {
namespace {

std::int64_t now_nanoseconds() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

bool shows_progress(const Common& common) {
    return !common.quiet && ::isatty(STDERR_FILENO) == 1;
}

/// ", 210 MB/s, 12 s left", once there is something to tell it by.
std::string pace_text(std::uint64_t done, std::uint64_t left, double seconds) {
    constexpr double kTelling = 0.5;
    if (seconds < kTelling || done == 0) return "";
    const double rate = static_cast<double>(done) / seconds;
    std::string text = fmt::format(", {}/s", human_bytes(static_cast<std::uint64_t>(rate)));
    if (left == 0) return text;
    const double wait = static_cast<double>(left) / rate;
    return text + (wait < 120 ? fmt::format(", {:.0f} s left", wait)
                              : fmt::format(", {:.0f} min left", wait / 60));
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
    tell_error(Level::kError, verb, error.kind, error.text);
    return exit_code(error.kind);
}

Progress progress_bar(const Common& common) {
    if (!shows_progress(common)) return {};
    struct Phase {
        std::string name;
        std::int64_t begun = 0;
        std::uint64_t begun_at = 0;  // bytes
        std::int64_t drawn = 0;
    };
    const auto at = std::make_shared<Phase>();
    return [at](std::string_view phase, std::uint64_t done, std::uint64_t total) {
        const std::int64_t now = now_nanoseconds();
        if (at->name != phase || done < at->begun_at) *at = {std::string(phase), now, done, 0};
        if (now - at->drawn < 50'000'000 && done != total) return;
        at->drawn = now;
        const double share =
            total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
        const double seconds = static_cast<double>(now - at->begun) * 1e-9;
        fmt::print(stderr, "\r\033[K{:8} {} {:3.0f} %  {} of {}{}", phase, bar(share, 30),
                   100 * share, human_bytes(done), human_bytes(total),
                   pace_text(done - at->begun_at, total - std::min(done, total), seconds));
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

std::string counted(std::uint64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", human_count(count), noun, count == 1 ? "" : "s");
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
