// Where a publisher's baseline lies if nobody names a folder.
#pragma once

#include <filesystem>
#include <string>

#include "wisp/result.hpp"

namespace wisp {

/// In the user's cache, one for each run. kInvalid: neither XDG_CACHE_HOME nor HOME is set.
Result<std::filesystem::path> cached_baseline(const std::string& run_id);

}  // namespace wisp
