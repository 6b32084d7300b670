#include "publish/sharded/combine_shards.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "delta/compact_sealer.hpp"
#include "delta/interleave.hpp"

namespace wisp {
namespace {

constexpr std::uint32_t kNobody = UINT32_MAX;

std::unexpected<Error> misplaced(const BlockGrid& grid, std::uint64_t index, const Schema& schema,
                                 const std::string& problem) {
    const BlockRange range = grid[index];
    return fail(
        ErrorKind::kInvalid,
        fmt::format("tensor {}, from element {} on: {}; all ranks must divide the same "
                    "blocks among each other",
                    shown(schema.tensors()[range.tensor].name), range.first_element, problem));
}

Result<void> place_blocks(const BlockGrid& grid, const Schema& schema, CombinedShards& gathered) {
    gathered.owners.assign(static_cast<std::size_t>(grid.count()), {kNobody, 0});
    for (std::uint32_t rank = 0; rank < gathered.manifests.size(); ++rank) {
        std::uint32_t place = 0;
        for (const BlockSpan& span : gathered.manifests[rank].spans) {
            for (std::uint64_t b = 0; b < span.block_count; ++b) {
                const std::uint64_t index =
                    grid.first_of(static_cast<std::size_t>(span.tensor)) + span.first_block + b;
                auto& owner = gathered.owners[static_cast<std::size_t>(index)];
                if (owner.rank != kNobody) {
                    return misplaced(
                        grid, index, schema,
                        fmt::format("ranks {} and {} both hold the block", owner.rank, rank));
                }
                owner = {rank, place++};
            }
        }
    }
    for (std::size_t i = 0; i < gathered.owners.size(); ++i) {
        if (gathered.owners[i].rank != kNobody) continue;
        return misplaced(grid, i, schema, "no rank holds the block");
    }
    return {};
}

/// Numbers the segments: what no rank has is 0, then what came in shard manifests, then what was
/// uploaded.
class SegmentOrder {
  public:
    explicit SegmentOrder(const CombinedShards& gathered) : gathered_(gathered) {
        numbers_.resize(gathered.manifests.size(), 0);
        for (const bool inlined : {true, false}) {
            for (std::size_t rank = 0; rank < numbers_.size(); ++rank) {
                const ShardManifest& manifest = gathered.manifests[rank];
                if (manifest.uploaded_bytes() == 0 || manifest.parts.empty() != inlined) continue;
                numbers_[rank] = next_++;
            }
        }
    }
    std::uint64_t of(std::uint32_t rank) const { return numbers_[rank]; }

    InterleavedHead close(const InterleaveTable& table, const Bytes& own) const {
        InterleavedHead head;
        head.object = write_interleave_table(table);
        head.object.insert(head.object.end(), own.begin(), own.end());
        for (const ShardManifest& manifest : gathered_.manifests) {
            head.object.insert(head.object.end(), manifest.payload.begin(), manifest.payload.end());
        }
        for (const ShardManifest& manifest : gathered_.manifests) {
            head.parts.insert(head.parts.end(), manifest.parts.begin(), manifest.parts.end());
        }
        return head;
    }

  private:
    const CombinedShards& gathered_;
    std::vector<std::uint64_t> numbers_;
    std::uint64_t next_ = 1;
};

}  // namespace

Result<CombinedShards> combine_shards(const std::vector<Bytes>& manifests, const Schema& schema,
                                      const ShardCall& call) {
    CombinedShards gathered;
    for (std::size_t rank = 0; rank < manifests.size(); ++rank) {
        auto manifest = parse_shard_manifest(manifests[rank], schema, call);
        if (manifest && manifest->rank != rank) {
            manifest =
                fail(ErrorKind::kInvalid, fmt::format("it is that of rank {}", manifest->rank));
        }
        if (manifest && rank > 0 && manifest->log2_block_elements != gathered.log2_block_elements) {
            manifest = fail(ErrorKind::kInvalid, "blocks of another size than rank 0's");
        }
        if (!manifest) {
            return fail(manifest.error().kind,
                        fmt::format("rank {}: {}", rank, manifest.error().text));
        }
        gathered.log2_block_elements = manifest->log2_block_elements;
        gathered.state += manifest->state;
        gathered.touched_before += manifest->touched_before;
        gathered.touched_after += manifest->touched_after;
        for (const StoredPart& part : manifest->parts) gathered.part_bytes += part.bytes;
        gathered.manifests.push_back(std::move(*manifest));
    }
    if (gathered.manifests.empty())
        return fail(ErrorKind::kInvalid, "no shard manifest of any rank");
    const BlockGrid grid(schema, gathered.log2_block_elements);
    WISP_TRY(place_blocks(grid, schema, gathered));
    return gathered;
}

Result<InterleavedHead> interleave_delta(const CombinedShards& gathered, const Schema& schema,
                                         DeltaFacts& facts) {
    DeltaDirectory directory;
    directory.log2_block_elements = gathered.log2_block_elements;
    const SegmentOrder segments(gathered);
    InterleaveTable blocks;
    std::size_t index = 0;
    std::uint64_t blocks_bytes = 0;
    for (const TensorInfo& tensor : schema.tensors()) {
        DirectoryTensor entry;
        entry.info = tensor;
        const std::uint64_t count =
            block_count_of(element_count_of(tensor), gathered.log2_block_elements);
        for (std::uint64_t b = 0; b < count; ++b, ++index) {
            const auto& owner = gathered.owners[index];
            const ManifestBlock& block = gathered.manifests[owner.rank].blocks[owner.place];
            entry.changed_elements += block.changed;
            entry.block_bytes.push_back(block.bytes);
            blocks_bytes += block.bytes;
            blocks.add(segments.of(owner.rank), block.bytes);
        }
        if (entry.changed_elements > 0) directory.tensors.push_back(std::move(entry));
    }
    WISP_ASSIGN(const CompactFrame frame, frame_compact(directory, blocks_bytes, facts));
    Bytes own = write_safetensors_header(frame.entries, frame.metadata, kSealKey);
    InterleaveTable table;
    table.open_seal = true;
    table.add(0, own.size());
    for (const Extent& extent : blocks.extents) table.add(extent.segment, extent.bytes);
    table.add(0, frame.directory.size());
    own.insert(own.end(), frame.directory.begin(), frame.directory.end());
    return segments.close(table, own);
}

InterleavedHead interleave_whole(const CombinedShards& gathered, const Schema& schema,
                                 const Metadata& metadata) {
    const WeightsLayout layout = weights_layout(schema, metadata);
    const BlockGrid grid(schema, gathered.log2_block_elements);
    const SegmentOrder segments(gathered);
    InterleaveTable table;
    table.add(0, layout.header.size());
    for (const std::size_t tensor : layout.order) {
        for (std::uint64_t index = grid.first_of(tensor); index < grid.first_of(tensor + 1);
             ++index) {
            const BlockRange range = grid[index];
            table.add(segments.of(gathered.owners[static_cast<std::size_t>(index)].rank),
                      range.element_count * range.element_bytes);
        }
    }
    return segments.close(table, layout.header);
}

}  // namespace wisp
