#include "wisp/sharded_publisher.hpp"

#include "base/try.hpp"
#include "publish/sharded/shard_committer.hpp"
#include "wisp/stop.hpp"

namespace wisp {

struct WovenPublisher::State {
    std::unique_ptr<WovenDesk> desk;
    std::stop_token stop;
};

WovenPublisher::WovenPublisher(std::unique_ptr<State> state) : state_(std::move(state)) {}
WovenPublisher::WovenPublisher(WovenPublisher&&) noexcept = default;
WovenPublisher& WovenPublisher::operator=(WovenPublisher&&) noexcept = default;
WovenPublisher::~WovenPublisher() = default;

Result<WovenPublisher> WovenPublisher::open(const Location& run,
                                            const std::filesystem::path& scratch,
                                            const PublishOptions& options) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(auto desk, WovenDesk::open(run, scratch, options));
    return WovenPublisher(std::make_unique<State>(State{std::move(desk), options.run.stop}));
}

Result<ShardCall> WovenPublisher::call(const Schema& schema, std::uint64_t step, bool whole) {
    const StopScope scope(state_->stop);
    return state_->desk->call(schema, step, whole);
}

Result<PublishReport> WovenPublisher::commit(const ShardCall& call, const Schema& schema,
                                             const std::vector<std::vector<std::byte>>& slips) {
    const StopScope scope(state_->stop);
    return state_->desk->commit_slips(call, schema, slips);
}

const std::optional<StateDigest>& WovenPublisher::result() const {
    return state_->desk->landing();
}

std::optional<ShardCall> WovenPublisher::anchor_call() const {
    return state_->desk->anchor_call();
}

Result<PublishReport> WovenPublisher::commit_anchor(
    const ShardCall& call, const Schema& schema, const std::vector<std::vector<std::byte>>& slips) {
    const StopScope scope(state_->stop);
    return state_->desk->commit_anchor(call, schema, slips);
}

Result<void> WovenPublisher::heartbeat() {
    const StopScope scope(state_->stop);
    return state_->desk->heartbeat();
}

std::uint64_t WovenPublisher::next_step() const {
    return state_->desk->next_step();
}

const ReplicaRecord& WovenPublisher::at() const {
    return state_->desk->at();
}

const std::string& WovenPublisher::run() const {
    return state_->desk->run();
}

}  // namespace wisp
