#include "diagnostics.hpp"

#include <fmt/format.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>

#include "live_line.hpp"
#include "run_options.hpp"
#include "terminal.hpp"
#include "wisp/control.hpp"

namespace wisp::cli {
namespace {

std::atomic<bool> as_json = false;

const char* name_of(Level level) {
    switch (level) {
        case Level::kInfo: return "info";
        case Level::kWarning: return "warning";
        case Level::kError: return "error";
    }
    return "error";
}

std::string in_colour_of(Level level, const std::string& text) {
    switch (level) {
        case Level::kInfo: return coloured_on_stderr(Colour::kDim, text);
        case Level::kWarning: return coloured_on_stderr(Colour::kYellow, text);
        case Level::kError: return coloured_on_stderr(Colour::kRed, text);
    }
    return text;
}

void write(Level level, const std::string& verb, std::optional<ErrorKind> kind,
           const std::string& text) {
    clear_live_line();
    if (!as_json) {
        const std::string lead = fmt::format("wisp {}:", verb);
        fmt::print(stderr, "{} {}\n", in_colour_of(level, lead), text);
        return;
    }
    nlohmann::ordered_json line = {
        {"time", log_time()}, {"level", name_of(level)}, {"verb", verb}, {"message", text}};
    if (kind) line["error"] = wisp::name_of(*kind);
    // In one call, so that lines of several threads stay whole.
    fmt::print(stderr, "{}\n",
               line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

void add_log_format(Command& verb) {
    verb.add_option_function(
            "--log-format", [](const std::string& format) { as_json = format == "json"; },
            "How faults and notes on stderr are written: text, or json for one object per line")
        ->check(one_of({"text", "json"}))
        ->envname("WISP_LOG_FORMAT")
        ->default_str("text");
}

bool logs_json() {
    return as_json;
}

void tell(Level level, const std::string& verb, const std::string& text) {
    write(level, verb, std::nullopt, text);
}

void tell_error(Level level, const std::string& verb, ErrorKind kind, const std::string& text) {
    write(level, verb, kind, text);
}

std::string log_time() {
    const std::int64_t now = system_clock()->now_ms();
    std::string text = human_time(now);
    text.replace(text.find(' '), 1, "T");
    return fmt::format("{}.{:03}Z", text, now % 1000);
}

}  // namespace wisp::cli
