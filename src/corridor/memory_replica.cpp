#include <system_error>

#include "base/file.hpp"
#include "base/try.hpp"
#include "corridor/deliver_changes.hpp"
#include "corridor/pending_folder.hpp"
#include "kernel/scatter.hpp"
#include "wisp/replica.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

class OwnedWeights : public Weights {
  public:
    explicit OwnedWeights(const Weights& from) : schema_(from.schema()) {
        for (std::size_t i = 0; i < schema_.tensors().size(); ++i) {
            const auto bytes = from.bytes(i);
            tensors_.emplace_back(bytes.begin(), bytes.end());
        }
    }
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return tensors_[tensor]; }
    std::byte* block(const BlockRange& range) {
        return tensors_[range.tensor].data() + range.first_element * range.element_bytes;
    }

  private:
    Schema schema_;
    std::vector<Bytes> tensors_;
};

class MemoryReplica : public Replica {
  public:
    /// `temporary` is removed with the replica; without one, options.scratch is used and kept.
    MemoryReplica(MemoryReplicaOptions options, std::optional<PendingFolder> temporary)
        : options_(std::move(options)), temporary_(std::move(temporary)) {}

    std::string label() const override { return "the replica in memory"; }
    const Weights* weights() const override { return weights_ ? &*weights_ : nullptr; }
    fs::path scratch() const override { return temporary_ ? temporary_->path() : options_.scratch; }
    Result<std::optional<ReplicaRecord>> load() override { return at_; }
    Result<void> save(const ReplicaRecord& record) override {
        at_ = record;
        return {};
    }

    Result<ApplyReport> apply(const std::vector<fs::path>& deltas,
                              const ReplicaRecord& after) override {
        if (!weights_) return fail(ErrorKind::kWrongBase, label() + " holds no state yet");
        bool writing = false;
        auto report = deliver_changes(
            *weights_, at_->state, deltas, options_.threads,
            [&](const BlockRange& range, const BlockChanges& changes) -> Result<void> {
                writing = true;
                scatter_new_bits(changes, weights_->block(range));
                if (!options_.on_changes) return {};
                return options_.on_changes({range.tensor, range.first_element, &changes});
            });
        if (!report) {
            // Stopped half-way: what is in memory is no state any more.
            if (writing) WISP_TRY(discard());
            return report;
        }
        at_ = after;
        return report;
    }

    Result<void> adopt(const fs::path& folder, const ReplicaRecord& after) override {
        {
            WISP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
            weights_.emplace(checkpoint);
        }
        std::error_code ignored;
        fs::remove_all(folder, ignored);
        at_ = after;
        return options_.on_adopt ? options_.on_adopt(*weights_) : Result<void>{};
    }

    Result<void> discard() override {
        weights_.reset();
        if (at_) forget_state(*at_);
        return {};
    }

  private:
    MemoryReplicaOptions options_;
    std::optional<PendingFolder> temporary_;
    std::optional<OwnedWeights> weights_;
    std::optional<ReplicaRecord> at_;
};

}  // namespace

Result<std::unique_ptr<Replica>> open_memory_replica(const MemoryReplicaOptions& options) {
    if (options.scratch.empty()) {
        WISP_ASSIGN(PendingFolder temporary, PendingFolder::temporary({}));
        return std::make_unique<MemoryReplica>(options, std::move(temporary));
    }
    std::error_code error;
    fs::create_directories(options.scratch, error);
    if (error) return std::unexpected(file_error("create", options.scratch, error.value()));
    return std::make_unique<MemoryReplica>(options, std::nullopt);
}

}  // namespace wisp
