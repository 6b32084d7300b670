#include "wisp/publisher.hpp"

#include "base/try.hpp"
#include "checkpoint/block_feed.hpp"
#include "publish/publisher_state.hpp"
#include "publish/run_writer.hpp"
#include "wisp/stop.hpp"

namespace wisp {
namespace {

constexpr int kAttempts = 8;

}  // namespace

Publisher::Publisher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Publisher::Publisher(Publisher&&) noexcept = default;
Publisher& Publisher::operator=(Publisher&&) noexcept = default;
Publisher::~Publisher() = default;

Result<Publisher> Publisher::open(const Location& run, Replica& baseline,
                                  const PublishOptions& options) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(auto desk, PublishDesk::open(run, baseline, options));
    return Publisher(std::make_unique<State>(State{std::move(desk), options.run.stop}));
}

Result<PublishReport> Publisher::publish(const Weights& weights, std::uint64_t step) {
    WholeStream stream(weights);
    return publish(stream, step);
}

Result<PublishReport> Publisher::publish(WeightStream& weights, std::uint64_t step) {
    const StopScope scope(state_->stop);
    PublishDesk& desk = *state_->desk;
    for (int attempt = 0;; ++attempt) {
        WISP_ASSIGN(PreparedStep prepared, desk.prepare(weights, step));
        auto report = desk.commit(prepared);
        if (!report) {
            // A commit of ours whose answer was lost has turned up: stand on it and try again.
            if (report.error().kind == ErrorKind::kConflict && attempt < kAttempts) {
                WISP_TRY(desk.settle());
                continue;
            }
            return report;
        }
        desk.advance(prepared, *report);
        const Weights* source = weights.whole();
        if (source == nullptr) source = desk.baseline().weights();
        if (source == nullptr) return report;
        desk.anchor_if_due(*source, *report);
        return report;
    }
}

Result<void> Publisher::heartbeat() {
    const StopScope scope(state_->stop);
    return state_->desk->heartbeat();
}

std::uint64_t Publisher::next_step() const {
    return state_->desk->next_step();
}

const ReplicaRecord& Publisher::at() const {
    return state_->desk->at();
}

const std::string& Publisher::run() const {
    return state_->desk->run();
}

}  // namespace wisp
