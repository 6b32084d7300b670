// A woven file's strands put together into the file they are.
#pragma once

#include <filesystem>

#include "wisp/result.hpp"

namespace wisp {

/// `woven` holds the parts side by side, proven by their hashes. `file` is replaced. kCorrupt when
/// the weave breaks a rule.
Result<void> assemble_woven(const std::filesystem::path& woven, const std::filesystem::path& file);

}  // namespace wisp
