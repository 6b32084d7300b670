// A fuzz target among those that one program replays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

struct ReplayTarget {
    std::string_view name;
    int (*run)(const std::uint8_t* data, std::size_t size);
};

extern const std::vector<ReplayTarget> kReplayTargets;
