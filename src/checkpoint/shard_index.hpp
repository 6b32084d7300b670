// model.safetensors.index.json: which file of a Hugging Face folder holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

inline constexpr std::string_view kShardIndexName = "model.safetensors.index.json";

/// Tensor name to file name. File names are bare names of .safetensors files: no path in them
/// leads anywhere else. `label` names the file in errors.
Result<std::map<std::string, std::string>> parse_shard_index(std::string_view json,
                                                             std::string_view label);

}  // namespace wisp
