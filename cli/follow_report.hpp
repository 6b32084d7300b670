// What a follower tells while it runs: lines for people, JSON lines for machines.
//
// Used from one thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "output.hpp"

namespace wisp::cli {

std::string_view name_of(FollowEvent::Kind kind);
/// Every field that says something for this kind of event.
nlohmann::ordered_json event_json(const FollowEvent& event);

/// Of all events of this process.
struct FollowTotals {
    std::uint64_t applied = 0;
    std::uint64_t joined = 0;
    std::uint64_t faults = 0;
    std::uint64_t failed_commands = 0;
    std::uint64_t fetched_bytes = 0;
    std::uint64_t fetched_objects = 0;
};

class FollowReporter {
  public:
    FollowReporter(const Common& common, std::string verb)
        : common_(common), verb_(std::move(verb)) {}

    /// False when it is no news: the next poll of a wait that was told before.
    bool tell(const FollowEvent& event);
    void tell_failed_command(const Error& error);
    void finish(const FollowReport& report, bool stopped, double seconds);
    const FollowTotals& totals() const { return totals_; }

  private:
    void print_move(const FollowEvent& event);
    void print_waiting(const FollowEvent& event);

    Common common_;
    std::string verb_;
    FollowTotals totals_;
    bool waiting_ = false;
};

}  // namespace wisp::cli
