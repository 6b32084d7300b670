// The pieces of a WeightStream, held against the schema and handed out as blocks of its grid.
#pragma once

#include <filesystem>
#include <vector>

#include "base/bytes.hpp"
#include "base/parallel_by_size.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "checkpoint/safetensors.hpp"
#include "wisp/control.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// Weights as a stream of one group; must not outlive them.
class WholeStream : public WeightStream {
  public:
    explicit WholeStream(const Weights& weights) : weights_(&weights) {}
    const Schema& schema() const override { return weights_->schema(); }
    Result<void> restart() override;
    Result<std::span<const WeightPiece>> next() override;
    const Weights* whole() const override { return weights_; }

  private:
    const Weights* weights_;
    bool given_ = false;
    std::vector<WeightPiece> pieces_;
};

class BlockFeed {
  public:
    /// `schema` must outlive this, as must the stream.
    BlockFeed(WeightStream& stream, const Schema& schema);

    Result<void> restart();
    /// False after the last group. kInvalid when pieces are missing, overlap or have another size.
    Result<bool> next_group();
    std::uint64_t total_bytes() const { return schema_->total_bytes(); }
    /// Blocks of the group.
    std::uint64_t count() const { return end_ - begin_; }
    BlockRange range(std::uint64_t index) const { return grid_[begin_ + index]; }
    /// `buffer` holds the block if it is not as the schema says; thread-safe with one per thread.
    std::span<const std::byte> block(std::uint64_t index, Bytes& buffer) const;
    /// The same for `count` elements of it from `first` on.
    std::span<const std::byte> part(std::uint64_t index, std::uint64_t first, std::uint64_t count,
                                    Bytes& buffer) const;

  private:
    struct Placed {
        std::uint64_t first_block;
        WeightPiece piece;
    };
    Result<void> place(const WeightPiece& piece);
    WeightStream* stream_;
    const Schema* schema_;
    BlockGrid grid_;
    std::uint64_t begin_ = 0;
    std::uint64_t end_ = 0;
    std::vector<Placed> placed_;
};

/// How far reading a stream has come, and who is told.
struct FeedProgress {
    const char* stage;
    const Progress* told;
};

/// Every block of the stream, from its beginning: produce(index, thread) on several threads,
/// consume(index, value) in order. Both may ask the feed for range(index).
template <class T>
Result<void> read_blocks(BlockFeed& feed, unsigned threads, const FeedProgress& progress,
                         const std::function<Result<T>(std::uint64_t, unsigned)>& produce,
                         const std::function<Result<void>(std::uint64_t, T)>& consume) {
    std::uint64_t done = 0;
    WISP_TRY(feed.restart());
    for (;;) {
        WISP_ASSIGN(const bool more, feed.next_group());
        if (!more) return {};
        WISP_TRY(ordered_parallel_by_size<T>(
            feed.count(), threads,
            [&](std::uint64_t index) {
                const BlockRange range = feed.range(index);
                return range.element_count * range.element_bytes;
            },
            produce,
            [&](std::uint64_t index, T value) -> Result<void> {
                WISP_TRY(consume(index, std::move(value)));
                const BlockRange range = feed.range(index);
                done += range.element_count * range.element_bytes;
                if (*progress.told) (*progress.told)(progress.stage, done, feed.total_bytes());
                return {};
            }));
    }
}

/// The whole stream as a lone safetensors file, and its digest, in one pass.
Result<StateDigest> write_stream(WeightStream& stream, const std::filesystem::path& path,
                                 const Metadata& metadata, unsigned threads,
                                 const Progress& progress);

}  // namespace wisp
