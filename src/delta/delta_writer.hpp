// The way out: changes, block by block and in order, into a committed delta file.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/blocks.hpp"
#include "codec/block_encoder.hpp"
#include "codec/swift_encoder.hpp"
#include "codec/trl_encoder.hpp"
#include "delta/change_buffer.hpp"
#include "delta/delta_sealer.hpp"
#include "delta/detect.hpp"
#include "wisp/delta.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// Whether a delta must survive the power, or is only on its way into a bucket.
enum class Keep { kForGood, kForNow };

/// What one worker hands over for one block.
struct WrittenBlock {
    EncodedBlock encoded;  // compact and swift; TRL's codecs are encoded in order
    BlockChanges changes;  // of the compact codec only where they are kept
    TouchedSums touched;
    StateDigest old_state;
};

/// One per thread.
struct WriteWorker {
    Detector detector;
    DetectedBlock found;
    BlockEncoder encoder;
    SwiftEncoder swift;
    BlockChanges complete;  // with the old bits, where they had none
    Bytes rounded;          // the new block, where it came in another dtype
    Bytes tile;             // the old elements of one, side by side
    Bytes new_tile;
};

/// What changed from one block to the other; TRL's codecs are left for the order of blocks.
WrittenBlock encode_block(Codec codec, const TensorInfo& tensor, const BlockRange& range,
                          std::span<const std::byte> old_block,
                          std::span<const std::byte> new_block, const TensorSeed& seed,
                          WriteWorker& worker, bool keep_changes = false);

/// The same, with the changes known already. They hold bits that differ from the old ones, and
/// those where they are at hand; so does `touched`.
WrittenBlock encode_changes(Codec codec, const TensorInfo& tensor, const BlockRange& range,
                            std::span<const std::byte> old_block, const BlockChanges& changes,
                            const TouchedSums* touched, const TensorSeed& seed, WriteWorker& worker,
                            bool keep_changes = false);

class DeltaWriter {
  public:
    /// `slices` as in DiffOptions.
    static Result<DeltaWriter> create(const std::filesystem::path& output, Codec codec,
                                      const Schema& schema, unsigned log2_block_elements,
                                      unsigned slices = 0);
    /// From here on, what changes is also put there.
    void keep_in(ChangeBuffer* kept) { kept_ = kept; }

    /// What changed from one block to the other. Thread-safe given one worker per thread.
    WrittenBlock encode(const BlockRange& range, std::span<const std::byte> old_block,
                        std::span<const std::byte> new_block, const TensorSeed& seed,
                        WriteWorker& worker) const;
    /// As encode(), with the changes known already. A sliced delta has no use for `touched`: each
    /// tile has sums of its own.
    WrittenBlock encode_changes(const BlockRange& range, std::span<const std::byte> old_block,
                                const BlockChanges& changes, const TouchedSums* touched,
                                const TensorSeed& seed, WriteWorker& worker) const;
    /// In the order of the grid.
    Result<void> add(const BlockRange& range, WrittenBlock block);
    /// `base` is the digest of the whole old state.
    Result<DiffReport> finish(const StateDigest& base, std::uint64_t step,
                              Keep keep = Keep::kForGood);
    const StateDigest& old_state() const { return old_state_; }

  private:
    DeltaWriter(Codec codec, const Schema& schema, unsigned slices,
                std::unique_ptr<DeltaSealer> sealer)
        : codec_(codec), schema_(&schema), slices_(slices), sealer_(std::move(sealer)) {}
    Codec codec_;
    const Schema* schema_;
    unsigned slices_;
    std::unique_ptr<DeltaSealer> sealer_;
    std::size_t gap_tensor_ = SIZE_MAX;
    GapEncoder gaps_;
    TouchedSums touched_;
    StateDigest old_state_;
    ChangeBuffer* kept_ = nullptr;
};

}  // namespace wisp
