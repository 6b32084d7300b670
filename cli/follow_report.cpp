#include "follow_report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "diagnostics.hpp"
#include "live_line.hpp"
#include "run_options.hpp"

namespace wisp::cli {
namespace {

bool is_move(const FollowEvent& event) {
    return event.kind == FollowEvent::Kind::kApplied || event.kind == FollowEvent::Kind::kJoined;
}

}  // namespace

std::string_view name_of(FollowEvent::Kind kind) {
    switch (kind) {
        case FollowEvent::Kind::kApplied: return "applied";
        case FollowEvent::Kind::kJoined: return "joined";
        case FollowEvent::Kind::kWaiting: return "waiting";
        case FollowEvent::Kind::kFault: return "fault";
    }
    return "unknown";
}

nlohmann::ordered_json event_json(const FollowEvent& event) {
    nlohmann::ordered_json json = {{"event", name_of(event.kind)},
                                   {"seq", event.seq},
                                   {"epoch", event.epoch},
                                   {"step", nullptr},
                                   {"head_seq", event.head_seq},
                                   {"lag_steps", event.lag_steps},
                                   {"state", nullptr},
                                   {"stale", event.expired}};
    if (event.state != StateDigest{}) {
        json["step"] = event.step;
        json["state"] = to_text(event.state);
    }
    if (event.unproven) json["unproven"] = true;
    if (is_move(event)) {
        json["fetched_bytes"] = event.fetched_bytes;
        json["fetched_objects"] = event.fetched_objects;
        json["deltas_applied"] = event.deltas_applied;
        json["changed_elements"] = event.changed_elements;
        json["commit_age_ms"] = event.commit_age_ms;
        json["fetch_seconds"] = event.fetch_seconds;
        json["verify_seconds"] = event.verify_seconds;
        json["apply_seconds"] = event.apply_seconds;
    }
    if (event.kind == FollowEvent::Kind::kFault) {
        json["error"] = wisp::name_of(event.fault_kind);
        json["message"] = event.fault;
    }
    return json;
}

bool FollowReporter::tell(const FollowEvent& event) {
    if (event.kind != FollowEvent::Kind::kWaiting) clear_progress();
    if (event.kind == FollowEvent::Kind::kApplied) ++totals_.applied;
    if (event.kind == FollowEvent::Kind::kJoined) ++totals_.joined;
    if (event.kind == FollowEvent::Kind::kFault) ++totals_.faults;
    totals_.fetched_bytes += event.fetched_bytes;
    totals_.fetched_objects += event.fetched_objects;
    const bool waits = event.kind == FollowEvent::Kind::kWaiting;
    // Polling is no news: a wait is told once, when it begins.
    const bool begins = waits && !std::exchange(waiting_, waits);
    if (!waits) waiting_ = false;
    if (common_.json && (!waits || begins)) {
        print_json(event_json(event));
        std::fflush(stdout);
    }
    if (waits) {
        print_waiting(event);
        return begins;
    }
    if (event.kind == FollowEvent::Kind::kFault) {
        tell_error(Level::kWarning, verb_, event.fault_kind, event.fault + "; going on");
    } else if (!common_.json && !common_.quiet) {
        print_move(event);
    }
    return true;
}

void FollowReporter::print_move(const FollowEvent& event) {
    fmt::print(
        "step {}, seq {}: {}{} in {}; fetch {}, verify {}, apply {}; {}{}\n", event.step, event.seq,
        event.kind == FollowEvent::Kind::kJoined ? "joined by an anchor, " : "",
        human_bytes(event.fetched_bytes), counted(event.fetched_objects, "object"),
        human_seconds(event.fetch_seconds), human_seconds(event.verify_seconds),
        human_seconds(event.apply_seconds),
        event.lag_steps == 0 ? std::string("current") : fmt::format("{} behind", event.lag_steps),
        event.unproven ? ", on trust: the file carries no digest" : "");
    std::fflush(stdout);
}

void FollowReporter::print_waiting(const FollowEvent& event) {
    if (common_.json || !draws_live_line(common_)) return;
    draw_text(event.head_seq == 0 ? "waiting for the first step"
                                  : fmt::format("waiting at step {}, last commit {} ago",
                                                event.step, human_age(event.commit_age_ms)));
}

void FollowReporter::tell_failed_command(const Error& error) {
    ++totals_.failed_commands;
    tell_error(Level::kError, verb_, error.kind, error.text);
}

void FollowReporter::finish(const FollowReport& report, bool stopped, double seconds) {
    clear_progress();
    const ReplicaRecord& at = report.at;
    if (common_.json) {
        const bool has_state = at.state_seq != 0;
        using Json = nlohmann::ordered_json;
        print_json({{"verb", verb_},
                    {"ok", true},
                    {"run", at.run},
                    {"step", has_state ? Json(at.step) : Json()},
                    {"seq", at.seq},
                    {"epoch", at.epoch},
                    {"state", has_state ? Json(to_text(at.state)) : Json()},
                    {"has_state", has_state},
                    {"head_seq", report.head_seq},
                    {"lag_steps", report.lag_steps},
                    {"reached_until", report.reached_until},
                    {"stale", report.expired},
                    {"unproven", at.unproven},
                    {"stopped", stopped},
                    {"applied", totals_.applied},
                    {"joined", totals_.joined},
                    {"faults", totals_.faults},
                    {"failed_commands", totals_.failed_commands},
                    {"fetched_bytes", totals_.fetched_bytes},
                    {"fetched_objects", totals_.fetched_objects},
                    {"seconds", seconds}});
    } else if (!common_.quiet) {
        const std::uint64_t moves = totals_.applied + totals_.joined;
        if (at.state_seq == 0) {
            fmt::print("nothing was published yet\n");
        } else if (moves == 0) {
            fmt::print("step {}, seq {}: nothing new\n", at.step, at.seq);
        }
    }
}

}  // namespace wisp::cli
