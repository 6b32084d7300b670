#include "codec/trl_encoder.hpp"

#include <algorithm>
#include <limits>

namespace wisp {

void append_indices(const BlockChanges& changes, std::uint64_t first_element, bool wide,
                    Bytes& out) {
    for (const std::uint32_t position : changes.positions) {
        const std::uint64_t index = first_element + position;
        if (wide) {
            append_fixed(out, static_cast<std::int64_t>(index));
        } else {
            append_fixed(out, static_cast<std::int32_t>(index));
        }
    }
}

bool GapEncoder::append(const BlockChanges& changes, std::uint64_t first_element, Bytes& out) {
    for (const std::uint32_t position : changes.positions) {
        const std::uint64_t index = first_element + position;
        const std::uint64_t gap = index - next_;
        if (gap > std::numeric_limits<std::uint32_t>::max()) return false;
        append_fixed(out, static_cast<std::uint32_t>(gap));
        largest_gap_ = std::max(largest_gap_, gap);
        next_ = index + 1;
    }
    return true;
}

}  // namespace wisp
