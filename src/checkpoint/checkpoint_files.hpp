// The files that make up a checkpoint folder, wherever the weights come from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/weights.hpp"

namespace wisp {

struct CheckpointSource {
    std::filesystem::path path;
    std::string name;      // in the folder
    bool weights = false;  // safetensors, rather than configuration or tokenizer
};

/// What of `checkpoint` belongs into a folder that any loader can open: weights, index, and the
/// files beside them, but for what a trainer keeps there for itself. A lone file becomes
/// model.safetensors. kInvalid for names that are not plain.
Result<std::vector<CheckpointSource>> files_of(const Checkpoint& checkpoint);

/// How a lone safetensors file of these tensors is laid out: the header, and the order of its data.
struct WeightsLayout {
    Bytes header;
    std::vector<std::size_t> order;  // tensors of the schema
    std::uint64_t data_bytes = 0;
};
WeightsLayout weights_layout(const Schema& schema, const Metadata& metadata = {{"format", "pt"}});

/// As a lone safetensors file; by default with what loaders ask of one.
Result<void> write_weights(const Weights& weights, const std::filesystem::path& path,
                           const Metadata& metadata = {{"format", "pt"}});

/// Copies into an existing folder.
Result<void> copy_files(const std::vector<CheckpointSource>& files,
                        const std::filesystem::path& folder);

}  // namespace wisp
