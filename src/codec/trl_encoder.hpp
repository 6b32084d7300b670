// Changes as TRL writes them: absolute indices, or gaps between them, beside the raw values.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// Appends flat indices, int32 or int64, of a block that starts at `first_element`.
void append_indices(const BlockChanges& changes, std::uint64_t first_element, bool wide,
                    Bytes& out);

/// Gaps of one tensor, block after block: idx[k] - idx[k-1] - 1, with idx[-1] = -1.
class GapEncoder {
  public:
    /// Appends uint32 gaps. False when a gap does not fit: the tensor is beyond this codec.
    bool append(const BlockChanges& changes, std::uint64_t first_element, Bytes& out);
    std::uint64_t largest_gap() const { return largest_gap_; }

  private:
    std::uint64_t next_ = 0;  // the element after the last change
    std::uint64_t largest_gap_ = 0;
};

}  // namespace wisp
