#include <algorithm>
#include <system_error>
#include <utility>

#include "base/folder_lock.hpp"
#include "base/try.hpp"
#include "checkpoint/owned_weights.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/move_weights.hpp"
#include "wisp/replica.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

class MemoryReplica : public Replica {
  public:
    MemoryReplica(MemoryReplicaOptions options, ScratchFolder scratch)
        : options_(std::move(options)), scratch_(std::move(scratch)) {}

    std::string label() const override { return "the replica in memory"; }
    const Weights* weights() const override { return weights_.get(); }
    bool in_doubt() const override { return false; }
    fs::path scratch() const override { return scratch_.path(); }
    Result<std::optional<ReplicaRecord>> load() override { return at_; }
    Result<void> save(const ReplicaRecord& record) override {
        at_ = record;
        return {};
    }

    Result<ApplyReport> apply(const std::vector<fs::path>& deltas,
                              const ReplicaRecord& after) override {
        if (!weights_) return fail(ErrorKind::kWrongBase, label() + " holds no state yet");
        if (!options_.keep_previous && !options_.on_move) return apply_forgetting(deltas, after);
        previous_.reset();
        std::vector<MovedBlock> kept;
        std::shared_ptr<void> writing;
        auto report = move_weights(
            *weights_,
            {at_->state, &deltas, options_.threads, &options_.enter, &writing, after.state}, kept);
        if (report && options_.on_move) {
            auto told = options_.on_move({weights_.get(), &after, &kept, false});
            if (!told) {
                undo_move(*weights_, kept);
                return std::unexpected(std::move(told).error());
            }
        }
        if (!report) return report;
        if (options_.keep_previous) previous_.emplace(std::move(kept), *at_);
        at_ = after;
        return report;
    }

    Result<void> overwrite(std::span<const MovedBlock> changes,
                           const ReplicaRecord& after) override {
        // To tell of moves or to go back takes more than the new bits.
        if (options_.keep_previous || options_.on_move) return Replica::overwrite(changes, after);
        WISP_ASSIGN(const auto writing, enter());
        write_blocks(*weights_, changes, options_.threads);
        at_ = after;
        return {};
    }

    Result<void> adopt(const fs::path& folder, const ReplicaRecord& after) override {
        std::shared_ptr<void> writing;
        {
            WISP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
            if (options_.target) {
                WISP_ASSIGN(auto target, options_.target(checkpoint.schema()));
                WISP_ASSIGN(writing, enter());
                weights_ = std::move(target);
                copy_into_target(checkpoint);
            } else {
                WISP_ASSIGN(weights_, OwnedWeights::copy_of(checkpoint));
            }
        }
        previous_.reset();
        std::error_code ignored;
        fs::remove_all(folder, ignored);
        at_ = after;
        if (!options_.on_adopt) return {};
        auto told = options_.on_adopt(*weights_, after);
        if (!told) WISP_TRY(discard());
        return told;
    }

    Result<void> discard() override {
        weights_.reset();
        previous_.reset();
        if (at_) forget_state(*at_);
        return {};
    }

    Result<void> step_back() override {
        if (!options_.keep_previous) return Replica::step_back();
        if (!previous_) {
            return fail(ErrorKind::kNotFound,
                        label() +
                            " remembers no earlier state: it has taken no step since it "
                            "joined or last went back");
        }
        const auto& [kept, before] = *previous_;
        WISP_ASSIGN(const auto writing, enter());
        undo_move(*weights_, kept);
        if (options_.on_move) {
            auto told = options_.on_move({weights_.get(), &before, &kept, true});
            if (!told) {
                redo_move(*weights_, kept);
                return told;
            }
        }
        at_ = before;
        previous_.reset();
        return {};
    }

  private:
    /// Without a way back: what is stopped half-way is no state any more.
    Result<ApplyReport> apply_forgetting(const std::vector<fs::path>& deltas,
                                         const ReplicaRecord& after) {
        std::shared_ptr<void> writing;
        bool wrote = false;
        const auto begin = [&]() -> Result<void> {
            if (!wrote) {
                WISP_ASSIGN(writing, enter());
            }
            wrote = true;
            return {};
        };
        const ChangeTakers take = {[&](const MovedBlock& block) -> Result<void> {
                                       WISP_TRY(begin());
                                       write_block(*weights_, block);
                                       return {};
                                   },
                                   [&](const std::vector<MovedBlock>& blocks) -> Result<void> {
                                       if (blocks.empty()) return {};
                                       WISP_TRY(begin());
                                       write_blocks(*weights_, blocks, options_.threads);
                                       return {};
                                   }};
        auto report =
            deliver_changes(*weights_, at_->state, deltas, options_.threads, take, after.state);
        if (!report) {
            if (wrote) WISP_TRY(discard());
            return report;
        }
        at_ = after;
        return report;
    }

    Result<std::shared_ptr<void>> enter() const {
        return options_.enter ? options_.enter() : std::shared_ptr<void>();
    }
    void copy_into_target(const Checkpoint& checkpoint) {
        for (std::size_t i = 0; i < checkpoint.schema().tensors().size(); ++i) {
            std::ranges::copy(checkpoint.bytes(i), weights_->writable_bytes(i).begin());
        }
    }

    MemoryReplicaOptions options_;
    ScratchFolder scratch_;
    std::shared_ptr<MutableWeights> weights_;
    std::optional<ReplicaRecord> at_;
    std::optional<std::pair<std::vector<MovedBlock>, ReplicaRecord>> previous_;
};

}  // namespace

Result<void> Replica::step_back() {
    return fail(ErrorKind::kUnsupported, label() + " does not keep the state before its last step");
}

Result<std::unique_ptr<Replica>> open_memory_replica(const MemoryReplicaOptions& options) {
    WISP_ASSIGN(ScratchFolder scratch, ScratchFolder::open(options.scratch));
    return std::make_unique<MemoryReplica>(options, std::move(scratch));
}

}  // namespace wisp
