// How a run is, in one line: the same on the page, in `wisp status` and in its exit code.
//
// A verdict is the worst of its concerns. doc/operations.md has the rules and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/result.hpp"

namespace wisp {

enum class Severity {
    kOk,        // green
    kWarning,   // amber: look at it in working hours
    kCritical,  // red: weights do not arrive, or soon will not
};
/// "ok", "warning" or "critical".
std::string_view name_of(Severity severity);
/// "green", "amber" or "red".
std::string_view colour_of(Severity severity);

struct Concern {
    Severity severity = Severity::kWarning;
    /// One of "chain_broken", "expired", "no_commit", "certificate_ending", "replica_silent",
    /// "lag_growing", "replica_behind", "nothing_published", "unreadable".
    std::string cause;
    std::string text;
};

struct RunVerdict {
    Severity severity = Severity::kOk;
    std::string text;               // of the worst concern, and how many more there are
    std::vector<Concern> concerns;  // worst first; empty when all is well
};

/// What one run may be told to keep, where the usual rules are too lax for it.
struct VerdictLimits {
    std::optional<std::int64_t> age_ms;      // critical when the newest step is older
    std::optional<std::uint64_t> lag_steps;  // critical when a replica is further behind
};

/// Of a run that could not be read.
RunVerdict verdict_of(const Error& error);

/// "3.2 s", "5 min", "2.0 h" or "4.1 d", for ages.
std::string human_age(std::int64_t milliseconds);

}  // namespace wisp
