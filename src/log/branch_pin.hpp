// branches/<slot>: the objects of this run that another one stands on. Retention leaves them alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wisp/result.hpp"

namespace wisp {

struct BranchPin {
    std::string run;  // of the branch
    std::string at;   // path to it
    std::vector<std::string> keys;
};

std::string write_branch_pin(const BranchPin& pin);
/// kCorrupt, without a label.
Result<BranchPin> parse_branch_pin(std::string_view text);

inline constexpr std::uint64_t kBranchPinBytes = 16 << 20;

}  // namespace wisp
