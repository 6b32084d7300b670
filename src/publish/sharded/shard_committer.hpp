// Commits for all ranks of a sharded trainer: it has no weights, only their shard manifests.
//
// In place of the baseline stands a record; the weights it would hold are spread over the ranks,
// and each shard manifest tells the digest of what its rank really read.
#pragma once

#include "base/folder_lock.hpp"
#include "publish/run_writer.hpp"
#include "publish/sharded/combine_shards.hpp"
#include "wisp/sharded_publisher.hpp"

namespace wisp {

class ShardCommitter {
  public:
    static Result<std::unique_ptr<ShardCommitter>> open(const Location& run,
                                                        const std::filesystem::path& scratch,
                                                        const WriterOptions& options);

    Result<ShardCall> call(const Schema& schema, std::uint64_t step, bool whole);
    Result<PublishReport> commit_shards(const ShardCall& call, const Schema& schema,
                                        const std::vector<Bytes>& manifests);
    std::optional<ShardCall> anchor_call() const;
    Result<PublishReport> commit_anchor(const ShardCall& call, const Schema& schema,
                                        const std::vector<Bytes>& manifests);
    Result<void> heartbeat();
    const std::optional<StateDigest>& landing() const { return landing_; }
    const ReplicaRecord& at() const { return at_; }
    const RunWriter& writer() const { return *writer_; }

  private:
    ShardCommitter(ScratchFolder scratch, std::unique_ptr<RunWriter> writer);
    Result<void> reconcile();
    void stand_on_head();
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
    ScratchFolder scratch_;  // holds the writer's files
    std::unique_ptr<RunWriter> writer_;
    ReplicaRecord at_;
    std::vector<Expected> expected_;
    std::optional<StateDigest> landing_;
};

}  // namespace wisp
