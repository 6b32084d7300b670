// Spans of time as people write them: "500ms", "90s", "15m", "1h", "30d". A number without a unit
// is refused, since nobody can tell what was meant; 0 alone needs none.
#pragma once

#include <string>
#include <string_view>

#include "command.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp::cli {

/// At most 36500 days, so that a time of today plus a duration is still a time.
Result<Milliseconds> parse_duration(std::string_view text);

/// An option that takes a duration; anything else, or less than `shortest`, is wrong usage.
Option* add_duration(Command& verb, const std::string& name, Milliseconds& into,
                     const std::string& help, Milliseconds shortest = Milliseconds(0));

}  // namespace wisp::cli
