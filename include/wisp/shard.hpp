// Trainers whose weights lie on several ranks: each codes and uploads what it holds, one commits.
//
// Blocks are what ranks divide among each other: every block of every tensor belongs to exactly one
// rank, which keeps its last committed bytes. One rank (rank 0) has the ShardedPublisher
// (sharded_publisher.hpp). For a step it sends every rank a ShardCall, and each answers with a
// shard manifest. How calls and shard manifests travel is the caller's affair; both are checked as
// foreign bytes. doc/protocol.md section 6.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/delta.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"
#include "wisp/store.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// Consecutive blocks of one tensor, of kBlockElements each; only the tensor's last may be short.
struct BlockSpan {
    std::uint64_t tensor = 0;  // in the order of the schema
    std::uint64_t first_block = 0;
    std::uint64_t block_count = 0;
    friend bool operator==(const BlockSpan&, const BlockSpan&) = default;
};

enum class ShardPart {
    kDelta,   // what changed since the call's base
    kWhole,   // the new weights whole: a first state, or another schema
    kAnchor,  // the committed state whole
};

/// What rank 0 asks of every rank.
struct ShardCall {
    ShardPart part = ShardPart::kDelta;
    std::uint64_t step = 0;
    std::uint64_t epoch = 0;
    StateDigest base;             // the committed state; of kWhole: nothing
    Codec codec = kDefaultCodec;  // of the run
    friend bool operator==(const ShardCall&, const ShardCall&) = default;
};
/// One line of JSON.
std::string write_call(const ShardCall& call);
Result<ShardCall> parse_call(std::string_view text);

struct ShardOptions {
    unsigned threads = 0;
    unsigned parallel_uploads = 4;
    std::uint64_t part_bytes = std::uint64_t{1} << 30;
    /// What is not longer travels in the shard manifest and becomes part of rank 0's object.
    std::uint64_t inline_bytes = 64 << 10;
    /// What changed is listed in memory up to this, and coded in deliver(); of denser steps the new
    /// bytes are copied up to `copy_bytes`, else a 32nd of the free memory. What is more is coded
    /// at once, while the trainer waits.
    std::uint64_t change_buffer_bytes = std::uint64_t{128} << 20;
    std::optional<std::uint64_t> copy_bytes;
    /// For what waits to be uploaded; a temporary folder when empty.
    std::filesystem::path scratch;
    std::stop_token stop = {};  // ends a call early: wisp/control.hpp
};

struct DeliveredShard {
    std::uint64_t bytes = 0;
    std::uint64_t changed_elements = 0;
};

/// One rank's blocks: their committed bytes, and the way of new ones into the bucket. Used from one
/// thread at a time; deliver() needs the weights no more.
class ShardWriter {
  public:
    /// `spans` ascend and do not overlap. kInvalid when they are not blocks of the schema. Tests
    /// cut small models into smaller blocks, by `log2_block_elements`.
    static Result<ShardWriter> open(const Location& run, Schema schema, std::uint64_t rank,
                                    std::vector<BlockSpan> spans, const ShardOptions& options,
                                    unsigned log2_block_elements = kLog2BlockElements);
    ShardWriter(ShardWriter&&) noexcept;
    ShardWriter& operator=(ShardWriter&&) noexcept;
    ~ShardWriter();

    /// The whole state that the kept blocks belong to; none before adopt() or the first advance().
    const std::optional<StateDigest>& base() const;
    /// Takes this rank's blocks out of a whole state.
    Result<void> adopt(const Weights& whole, const StateDigest& state);
    /// kWrongBase when the kept blocks are of another state than the call's. What was found before
    /// and not committed is dropped.
    Result<void> begin(const ShardCall& call);
    /// The new bytes of the next spans, in order; as many at a time as the caller likes.
    Result<void> add(const std::vector<std::span<const std::byte>>& spans);
    /// After the last span.
    Result<void> finish();
    /// All of it at once.
    Result<void> find(const ShardCall& call, const std::vector<std::span<const std::byte>>& spans);
    /// Codes and uploads what was found, or for kAnchor the kept blocks, and returns the shard
    /// manifest for rank 0.
    Result<std::vector<std::byte>> deliver(const ShardCall& call);
    /// What the last deliver() of a step came to.
    const DeliveredShard& delivered() const;
    /// The step was committed as `state`: what was delivered becomes the base.
    Result<void> advance(const StateDigest& state);
    /// It was not.
    void drop();

  private:
    struct State;
    explicit ShardWriter(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
