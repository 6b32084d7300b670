// Moving the elements at given positions: out of a block, into a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernel/elements.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// Copies the elements of `block` at `positions` side by side to `to`.
inline void gather(const std::byte* block, std::span<const std::uint32_t> positions,
                   unsigned element_bytes, std::byte* to) {
    with_element_type(element_bytes, [&]<class T>(T) {
        for (const std::uint32_t position : positions) {
            std::memcpy(to, block + std::size_t{position} * sizeof(T), sizeof(T));
            to += sizeof(T);
        }
        return 0;
    });
}

/// Overwrites the elements of `block` at `positions`, all of which lie inside.
inline void scatter(std::span<const std::uint32_t> positions, const std::byte* from,
                    unsigned element_bytes, std::byte* block) {
    // Changes lie far apart, each on a cache line of its own: ask for lines well ahead.
    constexpr std::size_t kAhead = 32;
    with_element_type(element_bytes, [&]<class T>(T) {
        for (std::size_t i = 0; i < positions.size(); ++i) {
            if (i + kAhead < positions.size()) {
                __builtin_prefetch(block + std::size_t{positions[i + kAhead]} * sizeof(T), 1);
            }
            std::memcpy(block + std::size_t{positions[i]} * sizeof(T), from, sizeof(T));
            from += sizeof(T);
        }
        return 0;
    });
}

inline void scatter_new_bits(const BlockChanges& changes, std::byte* block) {
    scatter(changes.positions, changes.new_bits.data(), changes.element_bytes, block);
}

inline void scatter_old_bits(const BlockChanges& changes, std::byte* block) {
    scatter(changes.positions, changes.old_bits.data(), changes.element_bytes, block);
}

}  // namespace wisp
