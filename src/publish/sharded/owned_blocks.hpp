// The blocks of one rank of a sharded trainer, and what is done to all of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "checkpoint/blocks.hpp"
#include "kernel/tensor_seed.hpp"
#include "publish/sharded/shard_manifest.hpp"

namespace wisp {

/// The bytes of every span.
using SpanViews = std::vector<std::span<const std::byte>>;

/// A block of this rank, and where in the bytes of its span it lies.
struct OwnBlock {
    BlockRange range;
    std::size_t span = 0;
    std::size_t offset = 0;

    std::size_t size() const {
        return static_cast<std::size_t>(range.element_count * range.element_bytes);
    }
    std::span<const std::byte> of(std::span<const std::byte> span_bytes) const {
        return span_bytes.subspan(offset, size());
    }
};

class OwnBlocks {
  public:
    /// The spans were counted: they are blocks of the schema.
    OwnBlocks(Schema schema, std::vector<BlockSpan> spans, unsigned log2, unsigned threads);

    const Schema& schema() const { return schema_; }
    const std::vector<BlockSpan>& spans() const { return spans_; }
    const std::vector<OwnBlock>& blocks() const { return blocks_; }
    const TensorInfo& tensor_of(const OwnBlock& block) const {
        return schema_.tensors()[block.range.tensor];
    }
    const TensorSeed& seed_of(const OwnBlock& block) const { return seeds_[block.range.tensor]; }
    std::size_t span_bytes(std::size_t span) const;
    /// Where the block begins if the spans lie one after the other.
    std::size_t start_of(const OwnBlock& block) const {
        return span_starts_[block.span] + block.offset;
    }
    unsigned log2_block_elements() const { return log2_; }
    std::uint64_t total_bytes() const { return plain_bytes(spans_, schema_, log2_); }

    Result<StateDigest> digest(const SpanViews& views) const;
    /// The spans in the order in which a checkpoint file has their tensors.
    Result<void> write_segment(const SpanViews& views, const std::filesystem::path& path) const;
    /// Moves `kept` on by what was coded from it, block after block, into the file at `coded`.
    Result<void> apply(Codec codec, const std::filesystem::path& coded,
                       const std::vector<ManifestBlock>& lengths, std::vector<Bytes>& kept) const;

  private:
    Schema schema_;
    std::vector<BlockSpan> spans_;
    unsigned log2_;
    unsigned threads_;
    std::vector<TensorSeed> seeds_;
    std::vector<OwnBlock> blocks_;
    std::vector<std::size_t> span_starts_;
};

}  // namespace wisp
