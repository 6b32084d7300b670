// Tensors of one layer belong together.
#pragma once

#include <string>

#include "wisp/inspect.hpp"

namespace wisp::cli {

/// "model.layers.12.mlp.up_proj.weight" belongs to "layer 12"; what is in no layer stands alone.
std::string layer_of(const std::string& tensor);

/// A table of a delta: what changed in each layer, and what it costs.
void print_layers(const FileReport& delta);

}  // namespace wisp::cli
