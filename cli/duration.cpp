#include "duration.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "wisp/result.hpp"

namespace wisp::cli {
namespace {

struct Unit {
    std::string_view name;
    std::int64_t ms;
};

constexpr Unit kUnits[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
constexpr std::int64_t kLongestMs = 36'500 * std::int64_t{86'400'000};

}  // namespace

Result<Milliseconds> parse_duration(std::string_view text) {
    if (text == "0") return Milliseconds(0);
    std::uint32_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    for (const Unit& known : kUnits) {
        if (error != std::errc() || unit != known.name) continue;
        if (count > kLongestMs / known.ms) break;
        return Milliseconds(count * known.ms);
    }
    return fail(ErrorKind::kInvalid,
                fmt::format("'{}' is not a duration; write a whole number and its unit, like "
                            "500ms, 90s, 15m, 1h or 30d, up to 36500d",
                            printable(text.substr(0, 40))));
}

Option* add_duration(Command& verb, const std::string& name, Milliseconds& into,
                     const std::string& help, Milliseconds shortest) {
    return verb
        .add_option_function(
            name,
            [&into, name, shortest](const std::string& text) {
                const auto duration = parse_duration(text);
                if (!duration) refuse_usage(name, duration.error().text);
                if (*duration < shortest) {
                    refuse_usage(name, fmt::format("give at least {}ms", shortest.count()));
                }
                into = *duration;
            },
            help)
        ->type_name("DURATION");
}

}  // namespace wisp::cli
