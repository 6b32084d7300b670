#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/folder_lock.hpp"
#include "base/try.hpp"
#include "checkpoint/needed_tiles.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/touched_words.hpp"
#include "kernel/kernels.hpp"
#include "kernel/mix.hpp"
#include "wisp/relay.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kWhole = "whole-";
constexpr std::string_view kHanded = "handed-";

/// Tells of what tensors a move is.
class AbsentWeights : public Weights {
  public:
    explicit AbsentWeights(const Schema& schema) : schema_(&schema) {}
    const Schema& schema() const override { return *schema_; }
    std::span<const std::byte> bytes(std::size_t) const override { return {}; }

  private:
    const Schema* schema_;
};

ElementRuns runs_in(const std::vector<bool>& wanted) {
    ElementRuns runs;
    for (auto at = std::ranges::find(wanted, true); at != wanted.end();) {
        const auto past = std::find(at, wanted.end(), false);
        runs.emplace_back(at - wanted.begin(), past - wanted.begin());
        at = std::find(past, wanted.end(), true);
    }
    return runs;
}

/// What a step that does not find what it changes is refused with.
std::string foreign_memory(std::uint64_t step, const std::string& found, const std::string& whose) {
    return fmt::format(
        "step {} is refused before anything is written, since what it changes is not what it was "
        "made from ({}); the old values came from {}: somebody else wrote to that memory; a whole "
        "state is fetched, and the next update writes what differs from it",
        step, found, whose);
}

/// Its seal holds, so it is the old bits that make no sense.
bool is_foreign(const Error& error) {
    return error.kind == ErrorKind::kCorrupt || error.kind == ErrorKind::kWrongBase;
}

class RelayReplica : public Replica {
  public:
    RelayReplica(RelayReplicaOptions options, ScratchFolder scratch)
        : options_(std::move(options)), scratch_(std::move(scratch)) {}

    std::string label() const override { return "the engines' memory"; }
    const Weights* weights() const override { return nullptr; }
    bool has_state() const override { return at_ && at_->state_seq != 0; }
    bool in_doubt() const override { return false; }
    fs::path scratch() const override { return scratch_.path(); }
    Result<std::optional<ReplicaRecord>> load() override { return at_; }
    Result<void> save(const ReplicaRecord& record) override {
        at_ = record;
        return {};
    }

    Result<ApplyReport> apply(const std::vector<fs::path>& deltas,
                              const ReplicaRecord& after) override {
        if (!has_state()) return fail(ErrorKind::kWrongBase, label() + " holds no state yet");
        const auto parts = held();
        WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, schema_, parts.get()));
        if (chain.size() == 0 || chain.delta(0).facts().base != at_->state) {
            return fail(ErrorKind::kWrongBase,
                        fmt::format("the deltas to step {} do not start from state {}, where {} is",
                                    after.step, to_text(at_->state), label()));
        }
        if (parts != nullptr && !chain.all_partial()) {
            return fail(ErrorKind::kUnsupported,
                        fmt::format("the delta to step {} is not sliced, so that a host that holds "
                                    "slices alone cannot decode it",
                                    after.step));
        }
        if (parts == nullptr && options_.hand_over) {
            WISP_ASSIGN(const bool is_handed, hand_over(chain, deltas, after));
            if (is_handed) {
                at_ = after;
                return told_by_head(chain);
            }
        }
        WISP_ASSIGN(TouchedWords touched, TouchedWords::of(chain, schema_, options_.threads));
        WISP_ASSIGN(const std::span<std::byte> room, options_.room(touched.tensors()));
        if (room.size() < touched.room_bytes()) {
            return fail(ErrorKind::kInternal, "there is less room than was asked for");
        }
        touched.write_indices(room);
        WISP_TRY(options_.ask(at_->state));
        ChainSums sums;
        auto blocks = touched.run(chain, room, sums, options_.threads);
        if (!blocks && is_foreign(blocks.error())) {
            return fail(ErrorKind::kWrongBase,
                        foreign_memory(after.step, blocks.error().text, whose()));
        }
        if (!blocks) return std::unexpected(std::move(blocks).error());
        auto proof = chain.prove(at_->state, sums);
        if (!proof && proof.error().kind == ErrorKind::kWrongBase) {
            return fail(ErrorKind::kWrongBase,
                        foreign_memory(after.step, proof.error().text, whose()));
        }
        if (!proof) return std::unexpected(std::move(proof).error());
        if (proof->result != after.state) {
            return fail(
                ErrorKind::kCorrupt,
                fmt::format("the deltas lead to state {}, but their commit says {}: "
                            "nothing was changed; run 'wisp scrub'",
                            to_text(proof->result.value_or(StateDigest())), to_text(after.state)));
        }
        const AbsentWeights absent(schema_);
        ReplicaMove move{&absent, &after, &*blocks, false, {}};
        for (const TouchedSums& sum : sums.touched) move.moved_by += sum.after - sum.before;
        WISP_TRY(options_.on_move(move));
        at_ = after;
        ApplyReport report;
        chain.tell(*proof, sums, report);
        return report;
    }

    Result<void> adopt(const fs::path& folder, const ReplicaRecord& after) override {
        {
            WISP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
            schema_ = checkpoint.schema();
        }
        // The callee that was told of the one before may still be about to remove it.
        static std::atomic<std::uint64_t> adopted = 0;
        const fs::path kept = scratch() / fmt::format("{}{}", kWhole, ++adopted);
        std::error_code error;
        fs::remove_all(kept, error);
        fs::rename(folder, kept, error);
        if (error) return std::unexpected(file_error("move", folder, error.value()));
        at_ = after;
        auto told = options_.on_adopt(kept, schema_, after);
        if (!told) WISP_TRY(discard());
        return told;
    }

    std::shared_ptr<const HeldSlices> held() const override {
        return options_.held ? options_.held() : nullptr;
    }

    std::shared_ptr<const HeldSlices> held_of(const Schema& coming) override {
        return options_.held_of ? options_.held_of(coming) : nullptr;
    }

    Result<void> discard() override {
        if (at_) forget_state(*at_);
        return {};
    }

  private:
    /// What a chain says of itself: of several deltas what each changes, not what all do together.
    static ApplyReport told_by_head(const DeltaChain& chain) {
        ApplyReport report;
        report.deltas_applied = chain.size();
        for (std::size_t i = 0; i < chain.size(); ++i) {
            for (const DeltaTensor& tensor : chain.delta(i).tensors()) {
                report.changed_elements += tensor.changed_elements;
            }
            report.result = chain.delta(i).facts().result;
        }
        return report;
    }

    std::string whose() const { return options_.asked ? options_.asked() : label(); }

    Result<bool> hand_over(const DeltaChain& chain, const std::vector<fs::path>& deltas,
                           const ReplicaRecord& after) const {
        for (std::size_t i = 0; i < chain.size(); ++i) {
            if (chain.delta(i).facts().codec != Codec::kSwift) return false;
        }
        if (chain.delta(chain.size() - 1).facts().result != after.state) return false;
        // The files that were fetched are removed when this returns.
        static std::atomic<std::uint64_t> handed = 0;
        std::vector<fs::path> own;
        std::error_code error;
        for (const fs::path& delta : deltas) {
            own.push_back(scratch() / fmt::format("{}{}", kHanded, ++handed));
            fs::remove(own.back(), error);
            fs::create_hard_link(delta, own.back(), error);
            if (error) fs::copy_file(delta, own.back(), error);
            if (error) break;
        }
        Result<bool> taken = false;
        if (!error) taken = options_.hand_over(own, after);
        if (!taken || !*taken) {
            for (const fs::path& file : own) fs::remove(file, error);
        }
        return taken;
    }

    RelayReplicaOptions options_;
    ScratchFolder scratch_;
    std::optional<ReplicaRecord> at_;
    Schema schema_;
};

}  // namespace

Result<std::unique_ptr<Replica>> open_relay_replica(RelayReplicaOptions options) {
    WISP_ASSIGN(ScratchFolder scratch, ScratchFolder::open(options.scratch));
    // What a process left that was killed.
    std::error_code error;
    for (const auto& left : fs::directory_iterator(scratch.path(), error)) {
        const std::string name = left.path().filename().string();
        if (!name.starts_with(kWhole) && !name.starts_with(kHanded)) continue;
        std::error_code ignored;
        fs::remove_all(left.path(), ignored);
    }
    return std::make_unique<RelayReplica>(std::move(options), std::move(scratch));
}

Result<std::vector<MovedBlock>> decode_staged(const StagedWeights& weights,
                                              const std::vector<fs::path>& deltas,
                                              const StateDigest& from, const StateDigest& to,
                                              const std::string& whose, unsigned threads) {
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, weights.schema()));
    for (std::size_t i = 0; i < chain.size(); ++i) {
        if (chain.delta(i).facts().codec == Codec::kSwift) continue;
        return fail(ErrorKind::kUnsupported, "a delta that is not swift is not decoded here");
    }
    if (chain.size() == 0 || chain.delta(0).facts().base != from ||
        chain.delta(chain.size() - 1).facts().result != to) {
        return fail(ErrorKind::kInvalid, fmt::format("the deltas do not lead from state {} to {}",
                                                     to_text(from), to_text(to)));
    }
    auto changes = staged_changes(weights, chain, from, threads);
    if (!changes && changes.error().kind == ErrorKind::kWrongBase) {
        const std::uint64_t step = chain.delta(chain.size() - 1).facts().step;
        return fail(ErrorKind::kWrongBase, foreign_memory(step, changes.error().text, whose));
    }
    return changes;
}

Result<TileRuns> runs_of_tiles(const TensorInfo& tensor, unsigned slices,
                               std::span<const HeldPart> parts) {
    const TileGrid grid(tensor, choose_cut(tensor, slices));
    WISP_ASSIGN(const std::vector<bool> needed, needed_tiles(tensor, grid, parts));
    std::vector<bool> wanted(static_cast<std::size_t>(element_count_of(tensor)));
    for (std::size_t i = 0; i < needed.size(); ++i) {
        if (!needed[i]) continue;
        grid[i].each_run([&](std::uint64_t first, std::uint64_t past) {
            std::fill(wanted.begin() + static_cast<std::ptrdiff_t>(first),
                      wanted.begin() + static_cast<std::ptrdiff_t>(past), true);
        });
    }
    TileRuns runs;
    runs.needed = runs_in(wanted);
    for (const HeldPart& part : parts) {
        each_element(part, [&](std::uint64_t element) {
            wanted[static_cast<std::size_t>(element)] = false;
        });
    }
    runs.missing = runs_in(wanted);
    return runs;
}

StateDigest digest_of_words(const TensorInfo& tensor, std::span<const std::uint32_t> indices,
                            std::span<const std::uint64_t> words) {
    const TensorSeed seed = seed_of(tensor);
    StateDigest sum;
    for (std::size_t i = 0; i < indices.size(); ++i) sum += mix_word(seed, indices[i], words[i]);
    return sum;
}

StateDigest digest_of_words(const TensorInfo& tensor, std::uint64_t first_word,
                            std::span<const std::byte> words) {
    return active_kernels().mix_bytes(words.data(), words.size(), seed_of(tensor), first_word);
}

}  // namespace wisp
