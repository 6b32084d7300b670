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
    Bytes rounded;  // the new block, where it came in another dtype
};

/// What changed from one block to the other, in the compact codec.
WrittenBlock encode_compact(const TensorInfo& tensor, const BlockRange& range,
                            std::span<const std::byte> old_block,
                            std::span<const std::byte> new_block, const TensorSeed& seed,
                            BlockEncoder& encoder, bool keep_changes = false);

/// In any codec; of TRL's the changes alone.
WrittenBlock encode_block(Codec codec, const TensorInfo& tensor, const BlockRange& range,
                          std::span<const std::byte> old_block,
                          std::span<const std::byte> new_block, const TensorSeed& seed,
                          WriteWorker& worker, bool keep_changes);

class DeltaWriter {
  public:
    static Result<DeltaWriter> create(const std::filesystem::path& output, Codec codec,
                                      const Schema& schema, unsigned log2_block_elements);
    /// From here on, what changes is also put there.
    void keep_in(ChangeBuffer* kept) { kept_ = kept; }

    /// What changed from one block to the other. Thread-safe given one worker per thread.
    WrittenBlock encode(const BlockRange& range, std::span<const std::byte> old_block,
                        std::span<const std::byte> new_block, const TensorSeed& seed,
                        WriteWorker& worker) const;
    /// As encode(), with the changes known already. They hold bits that differ from the old ones.
    WrittenBlock encode_changes(const BlockRange& range, std::span<const std::byte> old_block,
                                BlockChanges changes, const TensorSeed& seed,
                                WriteWorker& worker) const;
    /// In the order of the grid.
    Result<void> add(const BlockRange& range, WrittenBlock block);
    /// `base` is the digest of the whole old state.
    Result<DiffReport> finish(const StateDigest& base, std::uint64_t step,
                              Keep keep = Keep::kForGood);
    const StateDigest& old_state() const { return old_state_; }

  private:
    DeltaWriter(Codec codec, const Schema& schema, std::unique_ptr<DeltaSealer> sealer)
        : codec_(codec), schema_(&schema), sealer_(std::move(sealer)) {}
    Codec codec_;
    const Schema* schema_;
    std::unique_ptr<DeltaSealer> sealer_;
    std::size_t gap_tensor_ = SIZE_MAX;
    GapEncoder gaps_;
    TouchedSums touched_;
    StateDigest old_state_;
    ChangeBuffer* kept_ = nullptr;
};

/// As diff(), between weights wherever they lie. The schemas must be the same.
Result<DiffReport> diff_weights(const Weights& old_state, const Weights& new_state,
                                const std::filesystem::path& delta, const DiffOptions& options);
/// The stream is read once, from its beginning; what changed is also put into `kept`.
Result<DiffReport> diff_stream(const Weights& old_state, WeightStream& new_state,
                               const std::filesystem::path& delta, const DiffOptions& options,
                               Keep keep = Keep::kForGood, ChangeBuffer* kept = nullptr);

struct FoundChanges {
    StateDigest base;  // of the old state as it was read
    std::uint64_t changed_elements = 0;
};
/// What diff_stream() would write, put into `kept` alone: write_buffered() can write it later, when
/// the stream's memory is another's. When it is too much to be kept there is no result in `kept`.
Result<FoundChanges> find_changes(const Weights& old_state, WeightStream& new_state,
                                  const DiffOptions& options, ChangeBuffer& kept);

/// What others found to have changed since `base`, whose digest is `known`. kWrongBase when it did
/// not hold the old bits they name.
Result<DiffReport> write_changes(const Weights& base, const StateDigest& known,
                                 ChangeStream& changes, const std::filesystem::path& delta,
                                 const DiffOptions& options, Keep keep = Keep::kForGood,
                                 ChangeBuffer* kept = nullptr);

/// What was found to have changed since `base`, block by block; the old bits are taken from there.
Result<DiffReport> write_buffered(const Weights& base, const StateDigest& known,
                                  std::span<const MovedBlock> blocks,
                                  const std::filesystem::path& delta, const DiffOptions& options,
                                  Keep keep = Keep::kForGood);

/// Both deltas start from `base`, whose digest is `known`: what leads from the end of the first to
/// the end of the second. Reads only the blocks that either touches.
Result<DiffReport> rebase_delta(const Weights& base, const StateDigest& known,
                                const std::filesystem::path& first_delta,
                                const std::filesystem::path& second_delta,
                                const std::filesystem::path& output, const DiffOptions& options,
                                ChangeBuffer* kept = nullptr);

/// The same for two lists of changes that are kept: how many are left, and in `kept` which. They
/// hold no old bits.
Result<std::uint64_t> rebase_buffered(const Weights& base, std::span<const MovedBlock> first,
                                      std::span<const MovedBlock> second, unsigned threads,
                                      ChangeBuffer& kept);

}  // namespace wisp
