// What changed, and nothing else: as little as can be done while somebody stands still for it.
#include <atomic>

#include "checkpoint/block_feed.hpp"
#include "delta/delta_writer.hpp"

namespace wisp {

Result<FoundChanges> find_changes(const Weights& old_state, WeightStream& new_state,
                                  const DiffOptions& options, ChangeBuffer& kept) {
    struct FoundBlock {
        BlockChanges changes;
        StateDigest old_state;
    };
    const Schema& schema = old_state.schema();
    const unsigned threads = thread_count(options.threads);
    std::vector<WriteWorker> workers(threads);
    const std::vector<TensorSeed> seeds = seeds_of(schema);
    std::atomic<bool> overflowed = false;
    FoundChanges found;
    BlockFeed feed(new_state, schema);
    WISP_TRY(read_blocks<FoundBlock>(
        feed, threads, {"diff", &options.progress},
        [&](std::uint64_t index, unsigned thread) -> Result<FoundBlock> {
            FoundBlock block;
            if (overflowed) return block;  // somebody else will read all of it again
            const BlockRange range = feed.range(index);
            const std::size_t width = range.element_bytes;
            const auto old_block = range.of(old_state.bytes(range.tensor));
            WriteWorker& worker = workers[thread];
            BlockChanges& changes = worker.found.changes;
            changes.clear();
            changes.element_bytes = range.element_bytes;
            for (std::size_t first = 0; first < range.element_count; first += kDetectElements) {
                const std::size_t count =
                    std::min<std::uint64_t>(kDetectElements, range.element_count - first);
                worker.detector.find(old_block.subspan(first * width, count * width),
                                     feed.part(index, first, count, worker.rounded), first, range,
                                     {&seeds[range.tensor], range.first_word() + first * width / 8,
                                      &block.old_state},
                                     changes);
            }
            block.changes = changes;  // in as much memory as they take, and no more
            return block;
        },
        [&](std::uint64_t index, FoundBlock block) -> Result<void> {
            const BlockRange range = feed.range(index);
            found.base += block.old_state;
            found.changed_elements += block.changes.count();
            kept.keep(range.tensor, range.first_element, std::move(block.changes));
            if (!kept.complete()) overflowed = true;
            return {};
        }));
    return found;
}

}  // namespace wisp
