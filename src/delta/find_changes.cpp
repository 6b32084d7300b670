// What changed, and nothing else: as little as can be done while somebody stands still for it.
#include <atomic>

#include "checkpoint/block_feed.hpp"
#include "delta/delta_writer.hpp"
#include "delta/diff_weights.hpp"

namespace wisp {

Result<FoundChanges> find_changes(const Weights& old_state, WeightStream& new_state,
                                  const DiffOptions& options, ChangeBuffer& kept) {
    const Schema& schema = old_state.schema();
    const unsigned threads = thread_count(options.threads);
    std::vector<WriteWorker> workers(threads);
    const std::vector<TensorSeed> seeds = seeds_of(schema);
    std::atomic<bool> overflowed = false;
    FoundChanges found;
    BlockFeed feed(new_state, schema);
    WISP_TRY(read_blocks<DetectedBlock>(
        feed, threads, {"diff", &options.progress},
        [&](std::uint64_t index, unsigned thread) -> Result<DetectedBlock> {
            if (overflowed) return DetectedBlock{};  // somebody else will read all of it again
            const BlockRange range = feed.range(index);
            WriteWorker& worker = workers[thread];
            worker.detector.detect_parts(
                range.of(old_state.bytes(range.tensor)),
                [&](std::size_t first, std::size_t count) {
                    return feed.part(index, first, count, worker.rounded);
                },
                range, seeds[range.tensor], true, worker.found);
            // In as much memory as they take, and no more.
            return worker.found;
        },
        [&](std::uint64_t index, DetectedBlock block) -> Result<void> {
            const BlockRange range = feed.range(index);
            found.base += block.old_state;
            found.changed_elements += block.changes.count();
            kept.keep(range.tensor, range.first_element, std::move(block.changes), block.touched);
            if (!kept.complete()) overflowed = true;
            return {};
        }));
    return found;
}

}  // namespace wisp
