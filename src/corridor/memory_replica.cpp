#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>

#include "base/file.hpp"
#include "base/try.hpp"
#include "corridor/deliver_changes.hpp"
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

/// Removed with its owner when nobody named another.
class ScratchFolder {
  public:
    static Result<ScratchFolder> make(const fs::path& named) {
        std::error_code error;
        if (!named.empty()) {
            fs::create_directories(named, error);
            if (error) return std::unexpected(file_error("create", named, error.value()));
            return ScratchFolder(named, false);
        }
        std::string name = (fs::temp_directory_path(error) / "wisp.XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            return std::unexpected(file_error("create", name, errno));
        }
        return ScratchFolder(name, true);
    }
    ScratchFolder(ScratchFolder&& other) noexcept
        : path_(std::move(other.path_)), owned_(std::exchange(other.owned_, false)) {}
    ~ScratchFolder() {
        std::error_code ignored;
        if (owned_) fs::remove_all(path_, ignored);
    }
    const fs::path& path() const { return path_; }

  private:
    ScratchFolder(fs::path path, bool owned) : path_(std::move(path)), owned_(owned) {}
    fs::path path_;
    bool owned_;
};

class MemoryReplica : public Replica {
  public:
    MemoryReplica(MemoryReplicaOptions options, ScratchFolder scratch)
        : options_(std::move(options)), scratch_(std::move(scratch)) {}

    std::string label() const override { return "the replica in memory"; }
    const Weights* weights() const override { return weights_ ? &*weights_ : nullptr; }
    fs::path scratch() const override { return scratch_.path(); }
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
    ScratchFolder scratch_;
    std::optional<OwnedWeights> weights_;
    std::optional<ReplicaRecord> at_;
};

}  // namespace

Result<std::unique_ptr<Replica>> open_memory_replica(const MemoryReplicaOptions& options) {
    WISP_ASSIGN(ScratchFolder scratch, ScratchFolder::make(options.scratch));
    return std::make_unique<MemoryReplica>(options, std::move(scratch));
}

}  // namespace wisp
