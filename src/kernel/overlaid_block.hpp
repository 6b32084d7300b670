// A block of weights with changes that were decoded and not written into it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/scatter.hpp"
#include "wisp/state.hpp"

namespace wisp {

struct OverlaidBlock {
    std::span<const std::byte> bytes;
    const BlockChanges* over = nullptr;     // null: none
    const BlockChanges* beneath = nullptr;  // between those and the bytes; null: none

    template <std::convertible_to<std::span<const std::byte>> Block>
    // NOLINTNEXTLINE(google-explicit-constructor): a block without changes over it is one too
    OverlaidBlock(const Block& block) : bytes(block) {}
    OverlaidBlock(std::span<const std::byte> block, const BlockChanges* changes)
        : bytes(block), over(changes) {}

    /// Copies the elements at the ascending `positions` side by side to `to`.
    void gather(std::span<const std::uint32_t> positions, unsigned element_bytes,
                std::byte* to) const {
        wisp::gather(bytes.data(), positions, element_bytes, to);
        if (beneath != nullptr) lay_over(*beneath, positions, element_bytes, to);
        if (over != nullptr) lay_over(*over, positions, element_bytes, to);
    }

  private:
    static void lay_over(const BlockChanges& changes, std::span<const std::uint32_t> positions,
                         unsigned element_bytes, std::byte* to) {
        std::size_t j = 0;
        for (std::size_t i = 0; i < positions.size(); ++i) {
            while (j < changes.count() && changes.positions[j] < positions[i]) ++j;
            if (j == changes.count()) return;
            if (changes.positions[j] != positions[i]) continue;
            std::memcpy(to + i * element_bytes, changes.new_bits.data() + j * element_bytes,
                        element_bytes);
        }
    }
};

}  // namespace wisp
