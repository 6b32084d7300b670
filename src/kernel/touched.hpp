// The digest of the words a change set touches, before and after: how a running digest moves on.
#pragma once

#include <cstdint>

#include "kernel/mix.hpp"
#include "kernel/overlaid_block.hpp"
#include "wisp/state.hpp"

namespace wisp {

struct TouchedSums {
    StateDigest before;
    StateDigest after;

    TouchedSums& operator+=(const TouchedSums& other) {
        before += other.before;
        after += other.after;
        return *this;
    }
};

/// `old_block` is the block before the change; `first_word` the index, inside the tensor,
/// of its first word. Each touched word counts once, however many of its elements changed.
TouchedSums touched_sums(const OverlaidBlock& old_block, const BlockChanges& changes,
                         const TensorSeed& seed, std::uint64_t first_word);

}  // namespace wisp
