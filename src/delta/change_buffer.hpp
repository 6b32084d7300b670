// What changed in a step, held in memory so that it need not be found or decoded a second time.
//
// Only as long as it fits the limit: past it everything is let go, and the caller goes the
// long way. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "kernel/touched.hpp"
#include "wisp/state.hpp"

namespace wisp {

class ChangeBuffer {
  public:
    explicit ChangeBuffer(std::uint64_t limit_bytes = limits::kChangeBufferBytes)
        : limit_bytes_(limit_bytes) {}

    /// In the order of the grid. How the digest moves, where that is known already: of all or none.
    void keep(std::size_t tensor, std::uint64_t first_element, BlockChanges changes,
              const std::optional<TouchedSums>& touched = {}) {
        if (overflowed_ || changes.empty()) return;
        if (!has_room(changes)) {
            give_up();
            return;
        }
        held_bytes_ += bytes_of(changes);
        changed_elements_ += changes.count();
        if (touched) touched_.push_back(*touched);
        blocks_.push_back({tensor, first_element, std::move(changes)});
    }
    bool has_room(const BlockChanges& changes) const {
        return !overflowed_ && held_bytes_ + bytes_of(changes) <= limit_bytes_;
    }
    /// Whatever it holds and will be given is let go; answers what it held.
    std::vector<MovedBlock> give_up() {
        overflowed_ = true;
        return release();
    }
    /// False: there was too much of it.
    bool complete() const { return !overflowed_; }

    std::span<const MovedBlock> blocks() const { return blocks_; }
    /// One for each of the blocks, or none.
    std::span<const TouchedSums> touched() const { return touched_; }
    std::uint64_t changed_elements() const { return changed_elements_; }
    /// All of them, for somebody else to keep.
    std::vector<MovedBlock> release() {
        touched_.clear();
        return std::exchange(blocks_, {});
    }

  private:
    static std::uint64_t bytes_of(const BlockChanges& changes) {
        return changes.positions.capacity() * sizeof(std::uint32_t) + changes.old_bits.capacity() +
               changes.new_bits.capacity();
    }
    std::vector<MovedBlock> blocks_;
    std::vector<TouchedSums> touched_;
    std::uint64_t changed_elements_ = 0;
    std::uint64_t limit_bytes_;
    std::uint64_t held_bytes_ = 0;
    bool overflowed_ = false;
};

}  // namespace wisp
