// Chooses the classes and weights of a sparse block from what changed in it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/sparse_header.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// Keeps its histograms between blocks. Any plan decodes; a good one makes the block small.
class SparsePlanner {
  public:
    /// From the changes themselves, of which there is at least one. Only what changed gets weight.
    SparseHeader plan(std::span<const std::byte> old_block, const BlockChanges& changes,
                      const DtypeTraits& traits);

    struct Forecast {
        SparseHeader header;         // its change count is still open
        double changed_share = 0.0;  // of the elements looked at
    };
    /// From a look at parts of both blocks, before they are scanned: every class gets some weight,
    /// so that whatever the scan finds can be written. The same blocks give the same plan.
    Forecast forecast(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                      const DtypeTraits& traits);

  private:
    void reset(const ExponentField& field);
    SparseHeader choose(const ExponentField& field, bool weigh_all) const;

    std::vector<double> totals_;   // elements by exponent
    std::vector<double> changed_;  // changed elements by exponent
    std::vector<std::uint32_t> lanes_;
    std::vector<std::uint32_t> positions_;
};

}  // namespace wisp
