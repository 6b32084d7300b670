// An interleaved file's segments put together into the file they are.
#pragma once

#include <filesystem>

#include "wisp/result.hpp"

namespace wisp {

/// `interleaved` holds the parts side by side, proven by their hashes. `file` is replaced. kCorrupt
/// when the table breaks a rule.
Result<void> assemble_interleaved(const std::filesystem::path& interleaved,
                                  const std::filesystem::path& file);

}  // namespace wisp
