// Chooses the classes and weights of a sparse block from what changed in it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/sparse_header.hpp"
#include "wisp/change_set.hpp"
#include "wisp/dtype.hpp"

namespace wisp {

/// Keeps its histograms between blocks. Any plan decodes; a good one makes the block small.
class SparsePlanner {
  public:
    /// `changes` is not empty; `exponents` of the old block may be at hand.
    SparseHeader plan(std::span<const std::byte> old_block, const BlockChanges& changes,
                      const DtypeTraits& traits, std::span<const std::uint8_t> exponents);

  private:
    void count_exponents(std::span<const std::byte> old_block, const BlockChanges& changes,
                         const ExponentField& field, std::span<const std::uint8_t> exponents);
    std::vector<double> totals_;   // elements by exponent, estimated from a sample
    std::vector<double> changed_;  // changed elements by exponent, exact
    std::vector<std::uint32_t> sampled_;
};

}  // namespace wisp
