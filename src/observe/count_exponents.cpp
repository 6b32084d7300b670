#include <fmt/format.h>

#include <array>
#include <map>

#include "base/bytes.hpp"
#include "base/parallel.hpp"
#include "base/pending_folder.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "delta/delta_chain.hpp"
#include "follow/replica_updater.hpp"
#include "kernel/kernels.hpp"
#include "observe/binade.hpp"
#include "wisp/control.hpp"
#include "wisp/history.hpp"

namespace wisp {
namespace {

using Counts = std::array<std::uint64_t, 256>;

template <class T>
void count_as(std::span<const std::byte> elements, const ExponentField& field, Counts& into) {
    for (std::size_t at = 0; at < elements.size(); at += sizeof(T)) {
        ++into[field.of(load_le<T>(elements.data() + at))];
    }
}

void count_elements(std::span<const std::byte> elements, const DtypeTraits& traits, Counts& into) {
    const ExponentField field = exponent_field(traits);
    switch (traits.element_bytes) {
        case 1: return count_as<std::uint8_t>(elements, field, into);
        case 2: return count_as<std::uint16_t>(elements, field, into);
        case 4: return count_as<std::uint32_t>(elements, field, into);
        default: return count_as<std::uint64_t>(elements, field, into);
    }
}

/// One block: how many elements there are of each exponent, and how many of them change.
struct BlockCounts {
    ChainSums sums;
    Counts all{};
    Counts changed{};
};

Result<std::vector<BinadeCount>> count_over(const DeltaChain& chain, const Weights& base,
                                            unsigned threads) {
    const Schema& schema = base.schema();
    const BlockGrid grid(schema, chain.log2_block_elements());
    std::vector<ChainWorker> workers(threads);
    ChainSums sums;
    std::map<int, BinadeCount> by_binade;
    auto ran = ordered_parallel<BlockCounts>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<BlockCounts> {
            const BlockRange range = grid[index];
            const auto old_block = range.of(base.bytes(range.tensor));
            const TensorInfo& tensor = schema.tensors()[range.tensor];
            BlockCounts part;
            WISP_ASSIGN(const bool touched,
                        chain.run(range, old_block, workers[thread], part.sums));
            if (!has_binades(tensor.dtype)) return part;
            count_elements(old_block, traits_of(tensor.dtype), part.all);
            if (touched) {
                count_elements(workers[thread].net.old_bits, traits_of(tensor.dtype), part.changed);
            }
            return part;
        },
        [&](std::uint64_t index, BlockCounts part) -> Result<void> {
            sums.add(part.sums);
            const TensorInfo& tensor = schema.tensors()[grid[index].tensor];
            if (!has_binades(tensor.dtype)) return {};
            for (unsigned exponent = 0; exponent < part.all.size(); ++exponent) {
                if (part.all[exponent] == 0) continue;
                const int binade = binade_of(exponent, traits_of(tensor.dtype));
                BinadeCount& count = by_binade[binade];
                count.binade = binade;
                count.elements += part.all[exponent];
                count.changed += part.changed[exponent];
            }
            return {};
        });
    if (!ran) return std::unexpected(chain.explain(std::move(ran).error(), base, threads));
    WISP_TRY(chain.prove(std::nullopt, sums));
    std::vector<BinadeCount> counts;
    for (const auto& [binade, count] : by_binade) counts.push_back(count);
    return counts;
}

}  // namespace

struct ExponentCounter::State {
    CommitLog log;
    PendingFolder folder;
    std::unique_ptr<Replica> replica;
    ReplicaRecord at;
    unsigned threads;
    std::stop_token stop;
};

ExponentCounter::ExponentCounter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExponentCounter::ExponentCounter(ExponentCounter&&) noexcept = default;
ExponentCounter& ExponentCounter::operator=(ExponentCounter&&) noexcept = default;
ExponentCounter::~ExponentCounter() = default;

Result<ExponentCounter> ExponentCounter::open(const Location& where,
                                              const std::filesystem::path& work,
                                              const RunOptions& options, unsigned threads) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(PendingFolder folder, PendingFolder::temporary(work));
    FolderReplicaOptions replica_options;
    replica_options.threads = threads;
    replica_options.durable = false;
    WISP_ASSIGN(auto replica, open_folder_replica(folder.path() / "replica", replica_options));
    return ExponentCounter(
        std::make_unique<State>(State{std::move(log), std::move(folder), std::move(replica),
                                      ReplicaRecord(), thread_count(threads), options.stop}));
}

Result<std::vector<BinadeCount>> ExponentCounter::count(std::uint64_t seq) {
    const StopScope scope(state_->stop);
    WISP_ASSIGN(Lineage history, Lineage::of_newest(state_->log));
    WISP_ASSIGN(const LogEntry entry, history.at(seq));
    if (!entry.commit.delta) {
        return fail(ErrorKind::kNotFound, fmt::format("commit {} of {} has no delta", seq,
                                                      shown(state_->log.where().url)));
    }
    WISP_ASSIGN(const auto before, history.before(entry));
    if (!before) {
        return fail(ErrorKind::kGap, fmt::format("the state before commit {} was given up", seq));
    }
    {
        ReplicaUpdaterOptions options;
        options.threads = state_->threads;
        ReplicaUpdater updater(state_->log, *state_->replica, state_->at, std::move(options));
        WISP_TRY(updater.go(history, before->commit.state));
    }
    ObjectFetcher fetcher(state_->log.where(), state_->folder.path() / "fetched", 4);
    WISP_ASSIGN(const auto path, fetcher.fetch_surely(*entry.commit.delta));
    const Weights& base = *state_->replica->weights();
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open({path}, base.schema()));
    auto counts = count_over(chain, base, state_->threads);
    fetcher.clear();
    return counts;
}

}  // namespace wisp
