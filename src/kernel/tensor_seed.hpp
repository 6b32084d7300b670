// What makes the same word at the same place of another tensor mix differently.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "wisp/schema.hpp"

namespace wisp {

struct TensorSeed {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
};

/// Name, dtype and shape, each preceded by its length, so that no two tensors collide.
void append_identity(Bytes& out, const TensorInfo& tensor);

/// From name, dtype and shape: doc/format.md section 3.
TensorSeed seed_of(const TensorInfo& tensor);
std::vector<TensorSeed> seeds_of(const Schema& schema);

}  // namespace wisp
