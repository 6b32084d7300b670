#include "log/heartbeat.hpp"

#include <nlohmann/json.hpp>

#include "log/strict_json.hpp"

namespace wisp {

std::string write_heartbeat(const Heartbeat& heartbeat) {
    nlohmann::ordered_json json = {
        {"wisp", "heartbeat"},       {"version", 1},
        {"run", heartbeat.run},      {"seq", heartbeat.seq},
        {"step", heartbeat.step},    {"state_index", heartbeat.state_index},
        {"status", heartbeat.status}};
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
                        in.text("status"),
                        {},
                        {}};
    if (in.has("pause_us")) heartbeat.pause_us = in.time("pause_us");
    if (in.has("every_ms")) heartbeat.every_ms = in.time("every_ms");
    if (!problem.empty()) return std::nullopt;
    return heartbeat;
}

}  // namespace wisp
