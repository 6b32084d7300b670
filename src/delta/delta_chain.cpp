#include "delta/delta_chain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "delta/compose_changes.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

/// Makes the worker's block, unless it is there.
void make_block(const OverlaidBlock& from, ChainWorker& worker) {
    if (worker.has_block) return;
    worker.block.assign(from.bytes.begin(), from.bytes.end());
    if (from.beneath != nullptr) scatter_new_bits(*from.beneath, worker.block.data());
    if (from.over != nullptr) scatter_new_bits(*from.over, worker.block.data());
    worker.has_block = true;
}

}  // namespace

void ChainSums::add(const ChainSums& other) {
    base += other.base;
    changed_elements += other.changed_elements;
    touched.resize(std::max(touched.size(), other.touched.size()));
    for (std::size_t i = 0; i < other.touched.size(); ++i) touched[i] += other.touched[i];
    for (const auto& [where, count] : other.decoded) decoded[where] += count;
}

Result<DeltaChain> DeltaChain::open(const std::vector<std::filesystem::path>& paths,
                                    const Schema& schema, const HeldSlices* held) {
    DeltaChain chain;
    chain.log2_block_elements_ = kLog2BlockElements;
    for (const auto& path : paths) {
        const bool sliced = held != nullptr && path.extension() == kSlicesSuffix;
        WISP_ASSIGN(VerifiedDelta delta,
                    sliced ? verify_delta_slices(path, *held) : verify_delta_file(path));
        if (!chain.deltas_.empty()) {
            const VerifiedDelta& before = *chain.deltas_.back();
            if (before.sealed() && delta.sealed() && before.facts().result != delta.facts().base) {
                return fail(ErrorKind::kWrongBase,
                            fmt::format("delta {} starts from state {}, but {} ends at {}; name "
                                        "consecutive deltas, oldest first",
                                        shown(delta.label()), to_text(delta.facts().base),
                                        shown(before.label()), to_text(before.facts().result)));
            }
        }
        chain.log2_block_elements_ =
            std::max(chain.log2_block_elements_, delta.log2_block_elements());
        chain.deltas_.push_back(std::make_unique<VerifiedDelta>(std::move(delta)));
    }
    for (const auto& delta : chain.deltas_) {
        WISP_ASSIGN(BoundDelta bound, BoundDelta::bind(*delta, schema));
        chain.bound_.push_back(std::move(bound));
    }
    chain.seeds_ = seeds_of(schema);
    return chain;
}

bool DeltaChain::all_partial() const {
    return std::ranges::all_of(deltas_, [](const auto& delta) { return delta->partial(); });
}

bool DeltaChain::touches(const BlockRange& range) const {
    return std::ranges::any_of(bound_, [&](const auto& delta) { return delta.touches(range); });
}

std::size_t DeltaChain::skip_to(const StateDigest& base) {
    if (deltas_.empty() || !deltas_.front()->sealed()) return 0;
    if (deltas_.front()->facts().base == base) return 0;
    for (std::size_t i = deltas_.size(); i-- > 0;) {
        if (!deltas_[i]->sealed() || deltas_[i]->facts().result != base) continue;
        const auto count = static_cast<std::ptrdiff_t>(i + 1);
        deltas_.erase(deltas_.begin(), deltas_.begin() + count);
        bound_.erase(bound_.begin(), bound_.begin() + count);
        return i + 1;
    }
    return 0;
}

Result<bool> DeltaChain::run(const BlockRange& range, const OverlaidBlock& old_block,
                             ChainWorker& worker, ChainSums& sums) const {
    sums.touched.resize(bound_.size());
    worker.net.clear();
    worker.has_block = false;
    OverlaidBlock before = old_block;
    bool touched = false;
    for (std::size_t i = 0; i < bound_.size(); ++i) {
        if (!bound_[i].touches(range)) continue;
        if (before.over != nullptr && bound_[i].needs_whole_block(range))
            make_block(before, worker);
        if (worker.has_block) before = std::span<const std::byte>(worker.block);
        BlockChanges& step = touched ? worker.step : worker.net;
        WISP_TRY(bound_[i].decode(range, before, worker.decoders, step));
        sums.decoded[{i, bound_[i].tensor_of(range.tensor)}] += step.count();
        sums.touched[i] += touched_sums(before, step, seeds_[range.tensor], range.first_word());
        if (worker.has_block) scatter_new_bits(step, worker.block.data());
        if (touched) compose_changes(worker.net, step, worker.room);
        touched = true;
        if (!worker.has_block) {
            before.over = &worker.net;
            before.beneath = old_block.over;
        }
    }
    sums.changed_elements += worker.net.count();
    return touched;
}

std::span<const std::byte> DeltaChain::new_block(std::span<const std::byte> old_block,
                                                 ChainWorker& worker) {
    make_block({old_block, &worker.net}, worker);
    return worker.block;
}

Error DeltaChain::wrong_base(const VerifiedDelta& delta, const std::string& found) const {
    return Error{
        ErrorKind::kWrongBase,
        fmt::format("delta {} (step {}) was made from state {}, but {}; use the checkpoint "
                    "it was made from, or the deltas that lead up to it",
                    shown(delta.label()), delta.facts().step, to_text(delta.facts().base), found)};
}

Result<DeltaChain::Proof> DeltaChain::prove(const std::optional<StateDigest>& base,
                                            const ChainSums& sums) const {
    Proof proof;
    std::optional<StateDigest> state = base;
    for (std::size_t i = 0; i < deltas_.size(); ++i) {
        const VerifiedDelta& delta = *deltas_[i];
        const TouchedSums touched = i < sums.touched.size() ? sums.touched[i] : TouchedSums{};
        if (delta.sealed()) {
            // Without a digest of the whole base the touched values alone must prove it.
            if (!state) state = delta.facts().base;
            if (*state != delta.facts().base) {
                return std::unexpected(
                    wrong_base(delta, "the base given is at state " + to_text(*state)));
            }
            if (!delta.partial() && touched.before != delta.facts().touched) {
                return std::unexpected(
                    wrong_base(delta, "the values under its changes are not that state's"));
            }
            if (i == 0) proof.base_proven = true;
        }
        if (delta.partial()) {
            state = delta.facts().result;
            continue;
        }
        if (state) *state = *state - touched.before + touched.after;
        if (!delta.sealed()) continue;
        if (*state != delta.facts().result) {
            return fail(
                ErrorKind::kCorrupt,
                fmt::format("delta {} leads to state {} instead of {}; fetch it again",
                            shown(delta.label()), to_text(*state), to_text(delta.facts().result)));
        }
    }
    WISP_TRY(check_counts(sums));
    proof.result_proven = !deltas_.empty() && deltas_.back()->sealed();
    proof.result = state;
    return proof;
}

void DeltaChain::tell(const Proof& proof, const ChainSums& sums, ApplyReport& report) const {
    report.deltas_applied = size();
    report.changed_elements = sums.changed_elements;
    report.base_proven = proof.base_proven;
    report.result_proven = proof.result_proven;
    if (proof.result) report.result = *proof.result;
}

Result<void> DeltaChain::check_counts(const ChainSums& sums) const {
    for (std::size_t i = 0; i < deltas_.size(); ++i) {
        const VerifiedDelta& delta = *deltas_[i];
        if (!delta.sealed() || delta.partial()) continue;
        for (std::size_t tensor = 0; tensor < delta.tensors().size(); ++tensor) {
            const auto at = sums.decoded.find({i, tensor});
            const std::uint64_t decoded = at == sums.decoded.end() ? 0 : at->second;
            const std::uint64_t stated = delta.tensors()[tensor].changed_elements;
            if (decoded == stated) continue;
            return fail(ErrorKind::kCorrupt,
                        fmt::format("delta {}: tensor {} says that {} of its elements changed but "
                                    "{} do; fetch it again",
                                    shown(delta.label()), shown(delta.tensors()[tensor].info.name),
                                    stated, decoded));
        }
    }
    return {};
}

Error DeltaChain::explain(Error error, const Weights& base, unsigned threads) const {
    if (error.kind != ErrorKind::kCorrupt || deltas_.empty() || !deltas_.front()->sealed()) {
        return error;
    }
    const auto state = digest_of(base, threads);
    if (!state || *state == deltas_.front()->facts().base) return error;
    return wrong_base(*deltas_.front(), "the base given is at state " + to_text(*state));
}

}  // namespace wisp
