// The gaps of a swift block, put down: doc/format.md section 12.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "codec/gap_table.hpp"
#include "codec/rans.hpp"

namespace wisp {

/// One per thread: it keeps its buffers between blocks.
class GapWriter {
  public:
    /// Appends the low bits of the gaps before the ascending `positions`.
    void append_low_bits(std::span<const std::uint32_t> positions, const GapShape& shape,
                         Bytes& out);
    /// How many symbols the quotients take.
    std::size_t symbols() const { return symbols_; }
    /// Codes them. They are read before everything that was coded so far.
    void code(RansStates& states) const;

  private:
    unsigned zero_chance_ = 1;
    std::size_t symbols_ = 0;
    std::size_t count_ = 0;
    std::vector<std::uint32_t> quotients_;  // and room for more
};

}  // namespace wisp
