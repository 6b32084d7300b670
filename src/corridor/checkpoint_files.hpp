// The files that make up a checkpoint folder, wherever the weights come from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "format/safetensors.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/weights.hpp"

namespace wisp {

struct CheckpointSource {
    std::filesystem::path path;
    std::string name;      // in the folder
    bool weights = false;  // safetensors, rather than configuration or tokenizer
};

/// What of `checkpoint` belongs into a folder that any loader can open: weights, index, and the
/// files beside them. A lone file becomes model.safetensors. kInvalid for names that are not plain.
Result<std::vector<CheckpointSource>> files_of(const Checkpoint& checkpoint);

/// As a lone safetensors file; by default with what loaders ask of one.
Result<void> write_weights(const Weights& weights, const std::filesystem::path& path,
                           const Metadata& metadata = {{"format", "pt"}});

/// Copies into an existing folder.
Result<void> copy_files(const std::vector<CheckpointSource>& files,
                        const std::filesystem::path& folder);

}  // namespace wisp
