// What changed in one block of one tensor: strictly increasing positions, and the bits at each
// before and after.
//
// The one type that detection yields and decoding yields again. Absolute: applying it twice is the
// same as applying it once, and the old bits lead back. A whole ChangeSet is never held at once: it
// flows block by block, so that memory does not grow with the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace wisp {

struct BlockChanges {
    /// Relative to the block's first element.
    std::vector<std::uint32_t> positions;
    /// positions.size() elements of `element_bytes` each, little-endian, side by side.
    std::vector<std::byte> old_bits;
    std::vector<std::byte> new_bits;
    unsigned element_bytes = 1;

    std::size_t count() const { return positions.size(); }
    bool empty() const { return positions.empty(); }
    void clear() {
        positions.clear();
        old_bits.clear();
        new_bits.clear();
    }
    friend bool operator==(const BlockChanges&, const BlockChanges&) = default;
};

/// Proven changes of one block, and where it lies.
struct MovedBlock {
    std::size_t tensor = 0;
    std::uint64_t first_element = 0;
    BlockChanges changes;
};

}  // namespace wisp
