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

Result<void> place_blocks(const BlockGrid& grid, const Schema& schema, GatheredSlips& gathered) {
    gathered.owners.assign(static_cast<std::size_t>(grid.count()), {kNobody, 0});
    for (std::uint32_t rank = 0; rank < gathered.slips.size(); ++rank) {
        std::uint32_t place = 0;
        for (const BlockSpan& span : gathered.slips[rank].spans) {
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

/// Numbers the strands: what no rank has is 0, then what came in slips, then what was uploaded.
class StrandOrder {
  public:
    explicit StrandOrder(const GatheredSlips& gathered) : gathered_(gathered) {
        numbers_.resize(gathered.slips.size(), 0);
        for (const bool inlined : {true, false}) {
            for (std::size_t rank = 0; rank < numbers_.size(); ++rank) {
                const ShardSlip& slip = gathered.slips[rank];
                if (slip.uploaded_bytes() == 0 || slip.parts.empty() != inlined) continue;
                numbers_[rank] = next_++;
            }
        }
    }
    std::uint64_t of(std::uint32_t rank) const { return numbers_[rank]; }

    WovenHead close(const Weave& weave, const Bytes& own) const {
        WovenHead head;
        head.object = write_weave(weave);
        head.object.insert(head.object.end(), own.begin(), own.end());
        for (const ShardSlip& slip : gathered_.slips) {
            head.object.insert(head.object.end(), slip.payload.begin(), slip.payload.end());
        }
        for (const ShardSlip& slip : gathered_.slips) {
            head.parts.insert(head.parts.end(), slip.parts.begin(), slip.parts.end());
        }
        return head;
    }

  private:
    const GatheredSlips& gathered_;
    std::vector<std::uint64_t> numbers_;
    std::uint64_t next_ = 1;
};

}  // namespace

Result<GatheredSlips> gather_slips(const std::vector<Bytes>& slips, const Schema& schema,
                                   const ShardCall& call) {
    GatheredSlips gathered;
    for (std::size_t rank = 0; rank < slips.size(); ++rank) {
        auto slip = parse_slip(slips[rank], schema, call);
        if (slip && slip->rank != rank) {
            slip = fail(ErrorKind::kInvalid, fmt::format("it is that of rank {}", slip->rank));
        }
        if (slip && rank > 0 && slip->log2_block_elements != gathered.log2_block_elements) {
            slip = fail(ErrorKind::kInvalid, "blocks of another size than rank 0's");
        }
        if (!slip) {
            return fail(slip.error().kind, fmt::format("rank {}: {}", rank, slip.error().text));
        }
        gathered.log2_block_elements = slip->log2_block_elements;
        gathered.state += slip->state;
        gathered.touched_before += slip->touched_before;
        gathered.touched_after += slip->touched_after;
        for (const StoredPart& part : slip->parts) gathered.part_bytes += part.bytes;
        gathered.slips.push_back(std::move(*slip));
    }
    if (gathered.slips.empty()) return fail(ErrorKind::kInvalid, "no slip of any rank");
    const BlockGrid grid(schema, gathered.log2_block_elements);
    WISP_TRY(place_blocks(grid, schema, gathered));
    return gathered;
}

Result<WovenHead> weave_delta(const GatheredSlips& gathered, const Schema& schema,
                              DeltaFacts& facts) {
    DeltaDirectory directory;
    directory.log2_block_elements = gathered.log2_block_elements;
    const StrandOrder strands(gathered);
    Weave blocks;
    std::size_t index = 0;
    std::uint64_t blocks_bytes = 0;
    for (const TensorInfo& tensor : schema.tensors()) {
        DirectoryTensor entry;
        entry.info = tensor;
        const std::uint64_t count =
            block_count_of(element_count_of(tensor), gathered.log2_block_elements);
        for (std::uint64_t b = 0; b < count; ++b, ++index) {
            const auto& owner = gathered.owners[index];
            const SlipBlock& block = gathered.slips[owner.rank].blocks[owner.place];
            entry.changed_elements += block.changed;
            entry.block_bytes.push_back(block.bytes);
            blocks_bytes += block.bytes;
            blocks.add(strands.of(owner.rank), block.bytes);
        }
        if (entry.changed_elements > 0) directory.tensors.push_back(std::move(entry));
    }
    WISP_ASSIGN(const CompactFrame frame, frame_compact(directory, blocks_bytes, facts));
    Bytes own = write_safetensors_header(frame.entries, frame.metadata, kSealKey);
    Weave weave;
    weave.open_seal = true;
    weave.add(0, own.size());
    for (const WeaveRun& run : blocks.runs) weave.add(run.strand, run.bytes);
    weave.add(0, frame.directory.size());
    own.insert(own.end(), frame.directory.begin(), frame.directory.end());
    return strands.close(weave, own);
}

WovenHead weave_whole(const GatheredSlips& gathered, const Schema& schema,
                      const Metadata& metadata) {
    const WeightsLayout layout = weights_layout(schema, metadata);
    const BlockGrid grid(schema, gathered.log2_block_elements);
    const StrandOrder strands(gathered);
    Weave weave;
    weave.add(0, layout.header.size());
    for (const std::size_t tensor : layout.order) {
        for (std::uint64_t index = grid.first_of(tensor); index < grid.first_of(tensor + 1);
             ++index) {
            const BlockRange range = grid[index];
            weave.add(strands.of(gathered.owners[static_cast<std::size_t>(index)].rank),
                      range.element_count * range.element_bytes);
        }
    }
    return strands.close(weave, layout.header);
}

}  // namespace wisp
