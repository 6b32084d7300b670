#include "output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "diagnostics.hpp"
#include "live_line.hpp"

namespace wisp::cli {
namespace {

std::int64_t now_nanoseconds() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

/// Tells of each phase when the next begins, or when its bytes are done.
class PhaseTimes {
  public:
    explicit PhaseTimes(Common common) : common_(std::move(common)) {}

    void note(std::string_view phase, std::uint64_t done, std::uint64_t total) {
        if (phase_ != phase || done < done_) {
            phase_ = phase;
            watch_ = Stopwatch();
            told_ = false;
        }
        done_ = done;
        if (done < total || told_) return;
        told_ = true;
        const double seconds = watch_.seconds();
        tell(Level::kInfo, common_.verb,
             fmt::format("{}: {} in {}", phase, human_bytes(total), human_seconds(seconds)));
    }

  private:
    const Common common_;
    std::string phase_;
    std::uint64_t done_ = 0;
    bool told_ = false;
    Stopwatch watch_;
};

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
    clear_progress();
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
    const bool draws = draws_live_line(common);
    if (!draws && !common.verbose) return {};
    const auto times = common.verbose ? std::make_shared<PhaseTimes>(common) : nullptr;
    return [draws, times](std::string_view phase, std::uint64_t done, std::uint64_t total) {
        if (times) times->note(phase, done, total);
        if (draws) draw_progress(phase, done, total);
    };
}

Progress probe_line(const Common& common) {
    if (!draws_live_line(common)) return {};
    return [](std::string_view probe, std::uint64_t done, std::uint64_t total) {
        if (done < total) draw_text(fmt::format("probe {} of {}: {}", done + 1, total, probe));
    };
}

void clear_progress() {
    clear_live_line();
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

nlohmann::ordered_json blocks_json(const TensorReport& tensor) {
    auto json = nlohmann::ordered_json::object();
    for (const auto& [kind, count] : tensor.block_kinds) json[std::string(name_of(kind))] = count;
    return json;
}

void print_json(const nlohmann::ordered_json& value) {
    fmt::print("{}\n", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Stopwatch::Stopwatch() : start_(now_nanoseconds()) {}

double Stopwatch::seconds() const {
    return static_cast<double>(now_nanoseconds() - start_) * 1e-9;
}

}  // namespace wisp::cli
