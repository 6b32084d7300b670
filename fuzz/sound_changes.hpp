// What any decoded block must be, whatever its bytes were.
#pragma once

#include "fuzz_input.hpp"
#include "wisp/state.hpp"

namespace wisp::fuzz {

inline void check_sound(const BlockChanges& changes, std::span<const std::byte> old_block,
                        unsigned element_bytes) {
    const std::size_t width = element_bytes;
    FUZZ_CHECK(changes.element_bytes == element_bytes);
    FUZZ_CHECK(changes.old_bits.size() == changes.count() * width);
    FUZZ_CHECK(changes.new_bits.size() == changes.count() * width);
    for (std::size_t i = 0; i < changes.count(); ++i) {
        const std::size_t position = changes.positions[i];
        FUZZ_CHECK(position < old_block.size() / width);
        FUZZ_CHECK(i == 0 || changes.positions[i - 1] < position);
        const std::byte* const before = changes.old_bits.data() + i * width;
        FUZZ_CHECK(std::memcmp(before, old_block.data() + position * width, width) == 0);
        FUZZ_CHECK(std::memcmp(before, changes.new_bits.data() + i * width, width) != 0);
    }
}

}  // namespace wisp::fuzz
