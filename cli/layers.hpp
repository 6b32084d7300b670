// Tensors of one layer belong together.
#pragma once

#include <string>

namespace wisp::cli {

/// "model.layers.12.mlp.up_proj.weight" belongs to "layer 12"; what is in no layer stands alone.
std::string layer_of(const std::string& tensor);

}  // namespace wisp::cli
