// Finds exactly which elements of a block differ, by their bits, and how the digest moves.
#pragma once

#include <span>

#include "checkpoint/blocks.hpp"
#include "kernel/kernels.hpp"
#include "kernel/touched.hpp"
#include "wisp/state.hpp"

namespace wisp {

struct DetectedBlock {
    BlockChanges changes;
    TouchedSums touched;
    StateDigest old_state;  // of the whole old block; zero unless asked for
};

/// What was compared is read again at the changes; in parts of this size it is still in cache.
inline constexpr std::size_t kDetectElements = 1U << 15;

/// One per thread: it keeps its buffer between blocks.
class Detector {
  public:
    /// Positions and new bits alone, appended to `changes`, and the digest of what was old: all
    /// that must be taken from memory before others may write there. The parts are the elements of
    /// a block from `first` on, at most kDetectElements of them.
    void find(std::span<const std::byte> old_part, std::span<const std::byte> new_part,
              std::size_t first, const ScanDigest& digest, BlockChanges& changes);

    /// The same of all parts of the block; new_part(first, count) gives the new elements of one.
    /// Replaces `changes`.
    template <class NewPart>
    void find_all(std::span<const std::byte> old_block, NewPart&& new_part, const BlockRange& range,
                  const TensorSeed& seed, StateDigest& old_state, BlockChanges& changes) {
        const std::size_t width = range.element_bytes;
        changes.clear();
        changes.element_bytes = range.element_bytes;
        for (std::size_t first = 0; first < range.element_count; first += kDetectElements) {
            const std::size_t count =
                std::min<std::uint64_t>(kDetectElements, range.element_count - first);
            find(old_block.subspan(first * width, count * width), new_part(first, count), first,
                 {&seed, range.first_word() + first * width / 8, &old_state}, changes);
        }
    }

    /// Both blocks are the elements of `range`. With `digest_old` the old block's digest is taken
    /// in the same pass over memory.
    void detect(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                const BlockRange& range, const TensorSeed& seed, bool digest_old,
                DetectedBlock& found);

  private:
    /// Appends positions, and room for as many new bits. Returns the positions in the parts, until
    /// the next call.
    std::span<const std::uint32_t> list_positions(std::span<const std::byte> old_part,
                                                  std::span<const std::byte> new_part,
                                                  std::size_t first, const ScanDigest& digest,
                                                  BlockChanges& changes);
    std::vector<std::uint32_t> positions_;
};

}  // namespace wisp
