// In which tensors two checkpoints differ, apart from their values; for people.
#pragma once

#include <string>

#include "wisp/schema.hpp"

namespace wisp::cli {

/// "2 tensors are new (a, b), 1 is missing (c), 40 have another dtype (w: F32 instead of BF16)";
/// empty when they are the same.
std::string schema_difference(const Schema& before, const Schema& after);

}  // namespace wisp::cli
