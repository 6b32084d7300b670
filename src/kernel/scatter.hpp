// Moving the elements at given positions: out of a block, into a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernel/elements.hpp"
#include "wisp/change_set.hpp"

namespace wisp {

/// Fills `changes.new_bits` with the elements of `block` at `changes.positions`.
inline void gather_new_bits(const std::byte* block, BlockChanges& changes) {
    changes.new_bits.resize(changes.count() * changes.element_bytes);
    with_element_type(changes.element_bytes, [&]<class T>(T) {
        std::byte* to = changes.new_bits.data();
        for (const std::uint32_t position : changes.positions) {
            std::memcpy(to, block + std::size_t{position} * sizeof(T), sizeof(T));
            to += sizeof(T);
        }
        return 0;
    });
}

/// Overwrites the elements of `block` at the changed positions. Every position lies inside.
inline void scatter_new_bits(const BlockChanges& changes, std::byte* block) {
    with_element_type(changes.element_bytes, [&]<class T>(T) {
        const std::byte* from = changes.new_bits.data();
        for (const std::uint32_t position : changes.positions) {
            std::memcpy(block + std::size_t{position} * sizeof(T), from, sizeof(T));
            from += sizeof(T);
        }
        return 0;
    });
}

}  // namespace wisp
