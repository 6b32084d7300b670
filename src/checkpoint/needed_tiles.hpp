// Which tiles of a tensor a host needs: all that hold something it holds, whole, since a tile is
// decoded and proven as one.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/tiles.hpp"
#include "wisp/result.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// kInvalid when a part does not lie in the tensor.
Result<std::vector<bool>> needed_tiles(const TensorInfo& tensor, const TileGrid& grid,
                                       std::span<const HeldPart> parts);

/// Calls take(element) for each element of the part.
template <class Take>
void each_element(const HeldPart& part, Take&& take, std::size_t dimension = 0,
                  std::uint64_t from = 0) {
    if (dimension == part.dimensions.size()) {
        take(part.first + from);
        return;
    }
    const auto& [size, stride] = part.dimensions[dimension];
    for (std::uint64_t i = 0; i < size; ++i) {
        each_element(part, take, dimension + 1, from + i * stride);
    }
}

}  // namespace wisp
