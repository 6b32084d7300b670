// Rules about the paths a verb is given.
#pragma once

#include <filesystem>
#include <vector>

#include "wisp/result.hpp"

namespace wisp {

/// kInvalid when writing `output` would replace one of the `inputs`.
Result<void> refuse_overwriting(const std::filesystem::path& output,
                                const std::vector<std::filesystem::path>& inputs);

/// Copies a file or a folder; a full disk is reported as such.
Result<void> copy_tree(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace wisp
