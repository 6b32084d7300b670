// Changes found against a state that has moved on meanwhile, put onto the newer one.
#include <cstring>

#include "base/parallel.hpp"
#include "base/try.hpp"
#include "delta/delta_chain.hpp"
#include "delta/delta_writer.hpp"
#include "delta/diff_weights.hpp"

namespace wisp {
namespace {

struct RebasedBlock {
    ChainSums first;
    ChainSums second;
    WrittenBlock written;
};

/// Both lead away from `old_block`: what leads from the end of the first to that of the second.
BlockChanges between(const BlockChanges& first, const BlockChanges& second,
                     std::span<const std::byte> old_block) {
    BlockChanges changes;
    changes.element_bytes = second.empty() ? first.element_bytes : second.element_bytes;
    const std::size_t width = changes.element_bytes;
    const auto put = [&](std::uint32_t position, const std::byte* bits) {
        changes.positions.push_back(position);
        changes.new_bits.insert(changes.new_bits.end(), bits, bits + width);
    };
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < first.count() || j < second.count()) {
        const auto at = i < first.count() ? first.positions[i] : UINT32_MAX;
        const auto then = j < second.count() ? second.positions[j] : UINT32_MAX;
        if (at < then) {
            put(at, old_block.data() + at * width);  // the second left it as it was
        } else if (then < at || std::memcmp(first.new_bits.data() + i * width,
                                            second.new_bits.data() + j * width, width) != 0) {
            put(then, second.new_bits.data() + j * width);
        }
        if (at <= then) ++i;
        if (then <= at) ++j;
    }
    return changes;
}

/// The changes of one block in either of two lists; null: none.
struct BlockPair {
    const MovedBlock* first = nullptr;
    const MovedBlock* second = nullptr;
    const MovedBlock& any() const { return first != nullptr ? *first : *second; }
};

std::vector<BlockPair> pairs_of(std::span<const MovedBlock> first,
                                std::span<const MovedBlock> second) {
    const auto place = [](const MovedBlock& block) {
        return std::pair(block.tensor, block.first_element);
    };
    std::vector<BlockPair> pairs;
    while (!first.empty() || !second.empty()) {
        const bool one = second.empty() || (!first.empty() && place(first[0]) <= place(second[0]));
        const bool two = first.empty() || (!second.empty() && place(second[0]) <= place(first[0]));
        pairs.push_back({one ? &first[0] : nullptr, two ? &second[0] : nullptr});
        first = first.subspan(one ? 1 : 0);
        second = second.subspan(two ? 1 : 0);
    }
    return pairs;
}

}  // namespace

Result<std::uint64_t> rebase_buffered(const Weights& base, std::span<const MovedBlock> first,
                                      std::span<const MovedBlock> second, unsigned threads,
                                      ChangeBuffer& kept) {
    const std::vector<BlockPair> pairs = pairs_of(first, second);
    std::uint64_t changed = 0;
    WISP_TRY(ordered_parallel<BlockChanges>(
        pairs.size(), thread_count(threads),
        [&](std::uint64_t index, unsigned) -> Result<BlockChanges> {
            static const BlockChanges kNone;
            const auto& [one, two] = pairs[index];
            const MovedBlock& block = pairs[index].any();
            return between(one != nullptr ? one->changes : kNone,
                           two != nullptr ? two->changes : kNone,
                           base.bytes(block.tensor)
                               .subspan(block.first_element * block.changes.element_bytes));
        },
        [&](std::uint64_t index, BlockChanges changes) -> Result<void> {
            changed += changes.count();
            const MovedBlock& block = pairs[index].any();
            kept.keep(block.tensor, block.first_element, std::move(changes));
            return {};
        }));
    return changed;
}

Result<DiffReport> rebase_delta(const Weights& base, const StateDigest& known,
                                const std::filesystem::path& first_delta,
                                const std::filesystem::path& second_delta,
                                const std::filesystem::path& output, const DiffOptions& options,
                                ChangeBuffer* kept) {
    const Schema& schema = base.schema();
    WISP_ASSIGN(const DeltaChain first, DeltaChain::open({first_delta}, schema));
    WISP_ASSIGN(const DeltaChain second, DeltaChain::open({second_delta}, schema));
    const unsigned log2 = std::max(first.log2_block_elements(), second.log2_block_elements());
    WISP_ASSIGN(DeltaWriter writer,
                DeltaWriter::create(output, options.codec, schema, log2, options.slices));
    writer.keep_in(kept);
    const BlockGrid grid(schema, log2);
    const unsigned threads = thread_count(options.threads);
    std::vector<ChainWorker> first_workers(threads);
    std::vector<ChainWorker> second_workers(threads);
    std::vector<WriteWorker> write_workers(threads);
    ChainSums first_sums;
    ChainSums second_sums;
    WISP_TRY(ordered_parallel<RebasedBlock>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<RebasedBlock> {
            const BlockRange range = grid[index];
            const auto old_block = range.of(base.bytes(range.tensor));
            RebasedBlock block;
            WISP_ASSIGN(const bool in_first,
                        first.run(range, old_block, first_workers[thread], block.first));
            WISP_ASSIGN(const bool in_second,
                        second.run(range, old_block, second_workers[thread], block.second));
            block.written.encoded.tensor = range.tensor;
            if (!in_first && !in_second) return block;
            const std::span<const std::byte> before =
                in_first ? DeltaChain::new_block(old_block, first_workers[thread]) : old_block;
            const std::span<const std::byte> after =
                in_second ? DeltaChain::new_block(old_block, second_workers[thread]) : old_block;
            block.written = writer.encode(range, before, after, first.seed(range.tensor),
                                          write_workers[thread]);
            return block;
        },
        [&](std::uint64_t index, RebasedBlock block) -> Result<void> {
            first_sums.add(block.first);
            second_sums.add(block.second);
            return writer.add(grid[index], std::move(block.written));
        }));
    WISP_ASSIGN(const DeltaChain::Proof proof, first.prove(known, first_sums));
    WISP_TRY(second.prove(known, second_sums));
    return writer.finish(proof.result.value_or(known), options.step.value_or(0));
}

}  // namespace wisp
