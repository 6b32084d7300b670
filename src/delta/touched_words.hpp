// Swift deltas over weights that lie elsewhere: which words they touch, and, once those are known,
// what they become.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "delta/delta_chain.hpp"
#include "delta/touched_block.hpp"
#include "wisp/result.hpp"
#include "wisp/state.hpp"

namespace wisp {

class TouchedWords {
  public:
    /// Reads the positions of all deltas. kUnsupported when one is not of the codec swift.
    static Result<TouchedWords> of(const DeltaChain& chain, const Schema& schema, unsigned threads);

    /// Ascending, only those that are touched.
    const std::vector<TouchedTensor>& tensors() const { return tensors_; }
    std::size_t room_bytes() const { return room_bytes_; }
    /// Puts the indices into the room.
    void write_indices(std::span<std::byte> room) const;
    /// The room holds the old words: runs the deltas over them. Once. kCorrupt when the values make
    /// no sense, which of a sealed delta means other old words than it was made from; kWrongBase
    /// when a tile does not find those that it was made from.
    Result<std::vector<MovedBlock>> run(const DeltaChain& chain, std::span<const std::byte> room,
                                        ChainSums& sums, unsigned threads);

  private:
    std::vector<TouchedBlock> blocks_;  // ascending by tensor and element
    std::vector<TouchedTensor> tensors_;
    std::vector<std::size_t> first_block_;  // of each touched tensor, and one past the last
    std::vector<std::size_t> words_at_;     // of each block: in the room, in bytes
    std::size_t room_bytes_ = 0;
};

}  // namespace wisp
