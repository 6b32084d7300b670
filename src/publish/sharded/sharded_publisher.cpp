#include "wisp/sharded_publisher.hpp"

#include "base/try.hpp"
#include "publish/sharded/shard_committer.hpp"
#include "wisp/control.hpp"

namespace wisp {

struct ShardedPublisher::State {
    std::unique_ptr<ShardCommitter> committer;
    std::stop_token stop;
};

ShardedPublisher::ShardedPublisher(std::unique_ptr<State> state) : state_(std::move(state)) {}
ShardedPublisher::ShardedPublisher(ShardedPublisher&&) noexcept = default;
ShardedPublisher& ShardedPublisher::operator=(ShardedPublisher&&) noexcept = default;
ShardedPublisher::~ShardedPublisher() = default;

Result<ShardedPublisher> ShardedPublisher::open(const Location& run,
                                                const std::filesystem::path& scratch,
                                                const WriterOptions& options) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(auto committer, ShardCommitter::open(run, scratch, options));
    return ShardedPublisher(std::make_unique<State>(State{std::move(committer), options.run.stop}));
}

Result<ShardCall> ShardedPublisher::call(const Schema& schema, std::uint64_t step, bool whole) {
    const StopScope scope(state_->stop);
    return state_->committer->call(schema, step, whole);
}

Result<PublishReport> ShardedPublisher::commit(
    const ShardCall& call, const Schema& schema,
    const std::vector<std::vector<std::byte>>& manifests) {
    const StopScope scope(state_->stop);
    return state_->committer->commit_shards(call, schema, manifests);
}

const std::optional<StateDigest>& ShardedPublisher::result() const {
    return state_->committer->landing();
}

std::optional<ShardCall> ShardedPublisher::anchor_call() const {
    return state_->committer->anchor_call();
}

Result<PublishReport> ShardedPublisher::commit_anchor(
    const ShardCall& call, const Schema& schema,
    const std::vector<std::vector<std::byte>>& manifests) {
    const StopScope scope(state_->stop);
    return state_->committer->commit_anchor(call, schema, manifests);
}

Result<void> ShardedPublisher::heartbeat() {
    const StopScope scope(state_->stop);
    return state_->committer->heartbeat();
}

std::uint64_t ShardedPublisher::next_step() const {
    return state_->committer->writer().next_step();
}

const ReplicaRecord& ShardedPublisher::at() const {
    return state_->committer->at();
}

const std::string& ShardedPublisher::run() const {
    return state_->committer->writer().log().run();
}

}  // namespace wisp
