// replicas/<id>: what a replica says of itself now and then. Advice for people, never authority.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wisp/run.hpp"

namespace wisp {

struct Heartbeat {
    std::string run;
    std::uint64_t seq = 0;
    std::uint64_t step = 0;
    std::uint64_t state_index = 0;  // states up to its own
    ReplicaStatus status = ReplicaStatus::kUnknown;
    std::optional<std::int64_t> pause_us = std::nullopt;  // what the last apply took
    std::optional<std::int64_t> every_ms = std::nullopt;  // how often it means to be heard
};

std::string write_heartbeat(const Heartbeat& heartbeat);
std::optional<Heartbeat> parse_heartbeat(std::string_view text);

}  // namespace wisp
