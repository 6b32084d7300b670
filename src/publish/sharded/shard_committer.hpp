// The run writer of a sharded trainer: it has no weights, only the ranks' shard manifests.
//
// The log, epochs, races and the rule when an anchor is due are the run writer's own. In place of
// the baseline stands a record; the weights it would hold are spread over the ranks, and each shard
// manifest tells the digest of what its rank really read.
#pragma once

#include "base/folder_lock.hpp"
#include "base/pending_folder.hpp"
#include "publish/run_writer.hpp"
#include "publish/sharded/combine_shards.hpp"
#include "wisp/sharded_publisher.hpp"

namespace wisp {

/// Where a run stands, without its weights.
class RecordReplica : public Replica {
  public:
    RecordReplica(std::filesystem::path scratch, std::optional<PendingFolder> temporary,
                  FolderLock lock)
        : scratch_(std::move(scratch)), temporary_(std::move(temporary)), lock_(std::move(lock)) {}
    std::string label() const override { return "the record of a sharded trainer"; }
    const Weights* weights() const override { return nullptr; }
    bool in_doubt() const override { return false; }
    Result<std::optional<ReplicaRecord>> load() override { return at_; }
    Result<void> save(const ReplicaRecord& record) override;
    Result<ApplyReport> apply(const std::vector<std::filesystem::path>&,
                              const ReplicaRecord&) override;
    Result<void> adopt(const std::filesystem::path&, const ReplicaRecord&) override;
    Result<void> discard() override { return {}; }
    std::filesystem::path scratch() const override { return scratch_; }

  private:
    std::filesystem::path scratch_;
    std::optional<PendingFolder> temporary_;
    FolderLock lock_;
    std::optional<ReplicaRecord> at_;
};

class ShardCommitter : public RunWriter {
  public:
    static Result<std::unique_ptr<ShardCommitter>> open(const Location& run,
                                                        const std::filesystem::path& scratch,
                                                        const PublishOptions& options);

    Result<ShardCall> call(const Schema& schema, std::uint64_t step, bool whole);
    Result<PublishReport> commit_shards(const ShardCall& call, const Schema& schema,
                                        const std::vector<Bytes>& manifests);
    std::optional<ShardCall> anchor_call() const;
    Result<PublishReport> commit_anchor(const ShardCall& call, const Schema& schema,
                                        const std::vector<Bytes>& manifests);
    const std::optional<StateDigest>& landing() const { return landing_; }

  protected:
    Result<void> follow_head() override;

  private:
    ShardCommitter(std::unique_ptr<RecordReplica> record, CommitLog log,
                   const PublishOptions& options);
    Result<void> require_base(const CombinedShards& gathered, const ShardCall& call) const;
    Result<StoredFile> upload_interleaved(const InterleavedHead& head, const ShardCall& call,
                                          std::string name);
    Result<AnchorEntry> upload_whole(const CombinedShards& gathered, const Schema& schema,
                                     const ShardCall& call);
    void take_counts(const CombinedShards& gathered, PublishReport& report);
    void remember(const CombinedShards& gathered, const ShardCall& call);

    /// What a rank's blocks must sum up to next time; tells who has lost the base.
    struct Expected {
        std::vector<BlockSpan> spans;
        StateDigest state;
    };
    std::unique_ptr<RecordReplica> record_;
    std::vector<Expected> expected_;
    std::optional<StateDigest> landing_;
};

}  // namespace wisp
