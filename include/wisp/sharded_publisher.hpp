// A sharded trainer's rank 0: calls every rank for what it holds, and commits what they uploaded.
//
// The shard manifests are combined into the file that an unsharded trainer would have written, byte
// for byte. Opening takes the run over, as a Publisher does. There are no weights here: what the
// base is made of is spread over the ranks, and each shard manifest tells the digest of what its
// rank really read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wisp/publisher.hpp"
#include "wisp/shard.hpp"

namespace wisp {

class ShardedPublisher {
  public:
    /// Takes the run. `scratch` keeps who this writer is, and is its alone (kConflict);
    /// a temporary folder when empty.
    static Result<ShardedPublisher> open(const Location& run, const std::filesystem::path& scratch,
                                         const WriterOptions& options);
    ShardedPublisher(ShardedPublisher&&) noexcept;
    ShardedPublisher& operator=(ShardedPublisher&&) noexcept;
    ~ShardedPublisher();

    /// Finds out what became of an earlier step if that is open. `whole`: the ranks' blocks are
    /// lost and cannot be had from the bucket.
    Result<ShardCall> call(const Schema& schema, std::uint64_t step, bool whole = false);
    /// One shard manifest of each rank, in order. kWrongBase names ranks whose blocks are not of
    /// the base, kInvalid shard manifests that leave a block out or hold one twice. kConflict: call
    /// again. After kUnavailable the step may or may not be committed; result() and the next call()
    /// tell.
    Result<PublishReport> commit(const ShardCall& call, const Schema& schema,
                                 const std::vector<std::vector<std::byte>>& manifests);
    /// What the state will be if the last commit() that left it open has landed.
    const std::optional<StateDigest>& result() const;
    /// The call for an anchor of the committed state, if one is due.
    std::optional<ShardCall> anchor_call() const;
    /// Should it fail, it is due again at the next step.
    Result<PublishReport> commit_anchor(const ShardCall& call, const Schema& schema,
                                        const std::vector<std::vector<std::byte>>& manifests);
    Result<void> heartbeat();
    std::uint64_t next_step() const;
    const ReplicaRecord& at() const;
    const std::string& run() const;

  private:
    struct State;
    explicit ShardedPublisher(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
