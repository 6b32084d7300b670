// Which elements of a run's tensors a host holds, where its engines span several hosts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace wisp {

/// Elements of one tensor: the first, and for each dimension how many and how far apart. Numbers
/// count elements in row-major order, and lie inside the tensor.
struct HeldPart {
    struct Dimension {
        std::uint64_t size = 0;
        std::uint64_t stride = 0;
        friend bool operator==(const Dimension&, const Dimension&) = default;
    };
    std::uint64_t first = 0;
    std::vector<Dimension> dimensions;
    friend bool operator==(const HeldPart&, const HeldPart&) = default;
};

/// By the name of the tensor; of those that are absent, nothing. Parts may overlap.
using HeldSlices = std::map<std::string, std::vector<HeldPart>>;

}  // namespace wisp
