#include "wisp/publisher.hpp"

#include "base/try.hpp"
#include "checkpoint/block_feed.hpp"
#include "publish/publisher_state.hpp"
#include "wisp/control.hpp"

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
    WISP_ASSIGN(auto steps, StepPublisher::open(run, baseline, options));
    return Publisher(std::make_unique<State>(State{std::move(steps), options.run.stop}));
}

Result<PublishReport> Publisher::publish(const Weights& weights, std::uint64_t step) {
    WholeStream stream(weights);
    return publish(stream, step);
}

Result<PublishReport> Publisher::publish(WeightStream& weights, std::uint64_t step) {
    const StopScope scope(state_->stop);
    StepPublisher& steps = *state_->steps;
    for (int attempt = 0;; ++attempt) {
        WISP_ASSIGN(PreparedStep prepared, steps.prepare(weights, step));
        auto report = steps.commit(prepared);
        if (!report) {
            // A commit of ours whose answer was lost has turned up: stand on it and try again.
            if (report.error().kind == ErrorKind::kConflict && attempt < kAttempts) {
                WISP_TRY(steps.reconcile());
                continue;
            }
            return report;
        }
        steps.advance(prepared, *report);
        steps.anchor_if_due(weights.whole(), *report);
        return report;
    }
}

Result<void> Publisher::heartbeat() {
    const StopScope scope(state_->stop);
    return state_->steps->heartbeat();
}

std::uint64_t Publisher::next_step() const {
    return state_->steps->writer().next_step();
}

const ReplicaRecord& Publisher::at() const {
    return state_->steps->at();
}

const std::string& Publisher::run() const {
    return state_->steps->writer().log().run();
}

}  // namespace wisp
