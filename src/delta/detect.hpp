// Finds exactly which elements of a block differ, by their bits, and how the digest moves.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

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

/// What was compared is read again at the changes; in parts of this size it is still in the nearest
/// cache, and memory goes on bringing what the scan has asked for meanwhile.
inline constexpr std::size_t kDetectElements = 1U << 13;

/// One per thread: it keeps its buffer between blocks.
class Detector {
  public:
    /// Both blocks are the elements of `range`; new_part(first, count) gives some of the new ones,
    /// at most kDetectElements. With `digest_old` the old block's digest is taken in the same pass
    /// over memory. Replaces what was found.
    template <class NewPart>
    void detect_parts(std::span<const std::byte> old_block, NewPart&& new_part,
                      const BlockRange& range, const TensorSeed& seed, bool digest_old,
                      DetectedBlock& found) {
        const std::size_t width = range.element_bytes;
        found.old_state = {};
        found.touched = {};
        found.changes.clear();
        found.changes.element_bytes = range.element_bytes;
        for (std::size_t first = 0; first < range.element_count; first += kDetectElements) {
            const std::size_t count =
                std::min<std::uint64_t>(kDetectElements, range.element_count - first);
            add_part({old_block.subspan(first * width, count * width), new_part(first, count),
                      first, range.first_word() + first * width / 8},
                     seed, digest_old, found);
        }
    }
    void detect(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                const BlockRange& range, const TensorSeed& seed, bool digest_old,
                DetectedBlock& found) {
        const std::size_t width = range.element_bytes;
        detect_parts(
            old_block,
            [&](std::size_t first, std::size_t count) {
                return new_block.subspan(first * width, count * width);
            },
            range, seed, digest_old, found);
    }

  private:
    /// Parts of two blocks that begin on a whole word.
    struct Parts {
        std::span<const std::byte> old_part;
        std::span<const std::byte> new_part;
        std::size_t first;  // element of the block
        std::uint64_t first_word;
    };
    void add_part(const Parts& parts, const TensorSeed& seed, bool digest_old,
                  DetectedBlock& found);
    template <class T>
    static TouchedSums append_changes(const Parts& parts, std::span<const std::uint32_t> positions,
                                      const TensorSeed& seed, std::size_t at,
                                      BlockChanges& changes);
    std::vector<std::uint32_t> positions_;
};

}  // namespace wisp
