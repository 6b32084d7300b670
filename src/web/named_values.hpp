// Headers, or the fields of a query, in the order they were given.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace wisp {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

}  // namespace wisp
