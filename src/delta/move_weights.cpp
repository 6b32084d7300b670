#include "delta/move_weights.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/delta_chain.hpp"
#include "kernel/scatter.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

std::byte* block_of(MutableWeights& weights, const MovedBlock& moved) {
    return weights.writable_bytes(moved.tensor).data() +
           moved.first_element * moved.changes.element_bytes;
}

}  // namespace

Result<ApplyReport> move_weights(MutableWeights& weights, const MoveRequest& request,
                                 std::vector<MovedBlock>& kept) {
    kept.clear();
    const auto enter = [&]() -> Result<void> {
        if (!kept.empty() || !request.enter || !*request.enter) return {};
        WISP_ASSIGN(*request.entered, (*request.enter)());
        return {};
    };
    const ChangeTakers take = {[&](MovedBlock block) -> Result<void> {
                                   WISP_TRY(enter());
                                   kept.push_back(std::move(block));
                                   write_block(weights, kept.back());
                                   return {};
                               },
                               [&](std::vector<MovedBlock> blocks) -> Result<void> {
                                   if (blocks.empty()) return {};
                                   WISP_TRY(enter());
                                   kept = std::move(blocks);
                                   write_blocks(weights, kept, request.threads);
                                   return {};
                               }};
    auto report = deliver_changes(weights, request.known, *request.deltas, request.threads, take,
                                  request.wanted);
    if (!report) undo_move(weights, kept);
    return report;
}

void write_block(MutableWeights& weights, const MovedBlock& moved) {
    scatter_new_bits(moved.changes, block_of(weights, moved));
}

void write_blocks(MutableWeights& weights, std::span<const MovedBlock> moved, unsigned threads) {
    // Always finished, even when a stop is requested: half of it would be no state.
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < moved.size(); i = next++) write_block(weights, moved[i]);
    };
    std::vector<std::jthread> others;
    const std::size_t helping = std::min<std::size_t>(thread_count(threads), moved.size());
    for (std::size_t i = 1; i < helping && start_thread(others, work); ++i) {
    }
    work();
}

void undo_move(MutableWeights& weights, const std::vector<MovedBlock>& kept) {
    for (const MovedBlock& moved : kept) scatter_old_bits(moved.changes, block_of(weights, moved));
}

void redo_move(MutableWeights& weights, const std::vector<MovedBlock>& kept) {
    for (const MovedBlock& moved : kept) write_block(weights, moved);
}

Result<ApplyReport> apply_in_memory(MutableWeights& weights,
                                    const std::vector<std::filesystem::path>& deltas,
                                    const ApplyOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const StateDigest known, digest_of(weights, options.threads, options.progress));
    WISP_ASSIGN(DeltaChain chain, DeltaChain::open(deltas, weights.schema()));
    const std::size_t skipped = chain.skip_to(known);
    ApplyReport report;
    if (chain.size() == 0) {
        report.base_proven = report.result_proven = true;
        report.result = known;
    } else {
        const std::vector<std::filesystem::path> left(
            deltas.begin() + static_cast<std::ptrdiff_t>(skipped), deltas.end());
        std::vector<MovedBlock> kept;
        WISP_ASSIGN(report, move_weights(weights, {known, &left, options.threads, nullptr}, kept));
        auto reached = digest_of(weights, options.threads, options.progress);
        if (!reached || (report.result_proven && *reached != report.result)) {
            undo_move(weights, kept);
            if (!reached) return std::unexpected(std::move(reached).error());
            return fail(ErrorKind::kConflict,
                        "the weights were changed by others while deltas were applied to them; the "
                        "changes were taken back: keep others away, then try again");
        }
        report.result = *reached;
    }
    report.deltas_skipped = skipped;
    return report;
}

}  // namespace wisp
