// The symbol of one position, after as many escapes as the distance takes: doc/format.md section 9.
#pragma once

#include <algorithm>
#include <cstdint>

#include "codec/hazard.hpp"
#include "codec/rans.hpp"

namespace wisp {

class PositionWriter {
  public:
    PositionWriter(RansWriter& rans, unsigned shift) : rans_(rans), shift_(shift) {}

    /// `hazard` is the weight of all elements before the one that changed, `weight` its own.
    void put(std::uint64_t hazard, std::uint32_t weight) {
        const std::uint64_t bucket = bucket_units(shift_);
        // An element across the border may be named from either side; its larger part is cheaper.
        while (hazard >= origin_ + bucket || 2 * (origin_ + bucket - hazard) < weight) {
            rans_.put_position(kEscapeStart, kEscapeFrequency);
            origin_ += bucket;
        }
        const std::uint64_t begin = hazard > origin_ ? hazard - origin_ : 0;
        const std::uint64_t end = std::min(hazard + weight - origin_, bucket);
        const std::uint32_t start = slot_of(begin, shift_);
        rans_.put_position(start, slot_of(end, shift_) - start);
        origin_ = hazard + weight;
    }

  private:
    RansWriter& rans_;
    const unsigned shift_;
    std::uint64_t origin_ = 0;
};

}  // namespace wisp
