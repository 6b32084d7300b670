#include "log/heartbeat.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "log/strict_json.hpp"

namespace wisp {
namespace {

constexpr std::array<std::pair<ReplicaStatus, std::string_view>, 4> kStatuses{{
    {ReplicaStatus::kJoining, "joining"},
    {ReplicaStatus::kFollowing, "following"},
    {ReplicaStatus::kFailing, "failing"},
    {ReplicaStatus::kStopped, "stopped"},
}};

}  // namespace

std::string_view name_of(ReplicaStatus status) {
    for (const auto& [value, name] : kStatuses) {
        if (value == status) return name;
    }
    return "unknown";
}

std::optional<ReplicaStatus> parse_replica_status(std::string_view name) {
    for (const auto& [value, word] : kStatuses) {
        if (word == name) return value;
    }
    return std::nullopt;
}

std::string write_heartbeat(const Heartbeat& heartbeat) {
    nlohmann::ordered_json json = {{"wisp", "heartbeat"},
                                   {"version", 1},
                                   {"run", heartbeat.run},
                                   {"seq", heartbeat.seq},
                                   {"step", heartbeat.step},
                                   {"state_index", heartbeat.state_index},
                                   {"status", name_of(heartbeat.status)}};
    if (heartbeat.pause_us) json["pause_us"] = *heartbeat.pause_us;
    if (heartbeat.every_ms) json["every_ms"] = *heartbeat.every_ms;
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<Heartbeat> parse_heartbeat(std::string_view text) {
    const auto json = parse_strict_json(text);
    if (!json) return std::nullopt;
    std::string problem;
    FieldReader in(*json, problem);
    if (in.text("wisp") != "heartbeat") return std::nullopt;
    Heartbeat heartbeat{in.text("run"),
                        in.number("seq"),
                        in.number("step"),
                        in.number("state_index"),
                        parse_replica_status(in.text("status")).value_or(ReplicaStatus::kUnknown),
                        {},
                        {}};
    if (in.has("pause_us")) heartbeat.pause_us = in.time("pause_us");
    if (in.has("every_ms")) heartbeat.every_ms = in.time("every_ms");
    if (!problem.empty()) return std::nullopt;
    return heartbeat;
}

}  // namespace wisp
