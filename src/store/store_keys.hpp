// What every store checks before it acts, and reading an object whole.
#pragma once

#include <string_view>

#include "wisp/store.hpp"

namespace wisp {

/// The short answer of every store that has no such object.
Error no_such_object(std::string_view key);

}  // namespace wisp
