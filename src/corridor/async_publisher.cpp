#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/stopwatch.hpp"
#include "base/try.hpp"
#include "corridor/block_feed.hpp"
#include "corridor/delta_writer.hpp"
#include "corridor/publisher_state.hpp"
#include "wisp/stop.hpp"

namespace wisp {
namespace {

constexpr Milliseconds kFirstPause(200);
constexpr Milliseconds kLongestPause(30'000);
constexpr Milliseconds kStopLook(50);  // how often a caller that waits looks whether it is to end

}  // namespace

// Two locks, always taken in this order: the desk's baseline_mutex() for the weights the next delta
// is made against, then `mutex` for the queue. Uploads hold neither.
struct AsyncPublisher::State {
    State(Publisher given, Done told) : publisher(std::move(given)), done(std::move(told)) {}

    PublishDesk& desk() { return *publisher.state_->desk; }

    Publisher publisher;
    Done done;
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<PreparedStep> waiting;  // the newest step that nobody works on yet
    bool busy = false;
    bool stopping = false;
    std::optional<Error> fatal;
    std::optional<Error> last_failure;
    std::uint64_t failures = 0;
    std::jthread worker;

    /// Prepares a step against the baseline and puts it where the worker finds it.
    Result<Submitted> take(const std::function<Result<PreparedStep>(PublishDesk&)>& prepare) {
        const std::lock_guard baseline(desk().baseline_mutex());
        {
            const std::lock_guard lock(mutex);
            if (fatal) return std::unexpected(*fatal);
        }
        WISP_ASSIGN(PreparedStep prepared, prepare(desk()));
        const std::lock_guard lock(mutex);
        Submitted submitted;
        submitted.folded = waiting.has_value();
        waiting = std::move(prepared);
        changed.notify_all();
        return submitted;
    }

    void tell(const Result<PublishReport>& result) {
        if (done) done(result);
    }

    /// The commit is made: the waiting step is put onto it, then the baseline follows.
    void advance(PreparedStep& step, PublishReport& report) {
        const std::lock_guard baseline(desk().baseline_mutex());
        {
            const std::lock_guard lock(mutex);
            if (waiting && step.diff.changed_elements > 0) rebase(step);
        }
        desk().advance(step, report);
    }

    void rebase(const PreparedStep& onto) {
        auto rebased = desk().rebase(onto, *waiting);
        if (rebased) {
            waiting = std::move(*rebased);
        } else {
            // What it held is in the trainer's weights still; the next step brings it.
            last_failure = rebased.error();
            ++failures;
            waiting.reset();
        }
    }

    /// What became of a commit that got no answer.
    Result<bool> landed(const PreparedStep& step) {
        WISP_TRY(desk().look());
        const auto& head = desk().head();
        return head && head->commit.state.digest == step.diff.result &&
               head->commit.state.step == step.step;
    }

    /// False: the step could not be committed now, but may be later.
    Result<bool> work_on(PreparedStep& step) {
        if (desk().unsettled()) {
            WISP_ASSIGN(const bool there, landed(step));
            if (there) {
                PublishReport report;
                report.seq = desk().head()->commit.state.seq;
                report.epoch = desk().head()->commit.epoch;
                report.step = step.step;
                report.kind = "delta";
                report.state = step.diff.result;
                report.changed_elements = step.diff.changed_elements;
                report.total_elements = step.diff.total_elements;
                advance(step, report);
                tell(report);
                return true;
            }
        }
        auto report = desk().commit(step);
        if (!report && report.error().kind == ErrorKind::kConflict) {
            // An earlier commit of ours turned up, and this step does not stand on it.
            {
                const std::lock_guard baseline(desk().baseline_mutex());
                const std::lock_guard lock(mutex);
                waiting.reset();
                WISP_TRY(desk().settle());
            }
            return std::unexpected(report.error());
        }
        if (!report) return std::unexpected(std::move(report).error());
        advance(step, *report);
        // The baseline holds what was committed, and nobody but this thread changes it.
        const auto anchored = desk().anchor_if_due(*desk().baseline().weights(), *report);
        if (!anchored && anchored.error().kind == ErrorKind::kFenced) {
            return std::unexpected(anchored.error());
        }
        tell(report);
        return true;
    }

    void run() {
        Milliseconds pause = kFirstPause;
        std::optional<PreparedStep> step;
        std::unique_lock lock(mutex);
        for (;;) {
            if (step) {
                changed.wait_for(lock, pause, [&] { return stopping || waiting.has_value(); });
            } else {
                changed.wait(lock, [&] { return stopping || waiting.has_value(); });
            }
            if (stopping) break;
            if (waiting && !(step && desk().unsettled())) {
                // Newer than what could not be sent, and against the same state.
                step = std::move(waiting);
                waiting.reset();
            }
            busy = true;
            lock.unlock();
            const auto worked = work_on(*step);
            if (!worked) tell(std::unexpected(worked.error()));
            lock.lock();
            if (worked) {
                step.reset();
                pause = kFirstPause;
            } else {
                last_failure = worked.error();
                ++failures;
                const ErrorKind kind = worked.error().kind;
                if (kind == ErrorKind::kFenced) fatal = worked.error();
                if (kind == ErrorKind::kConflict || kind == ErrorKind::kFenced) step.reset();
                pause = std::min(pause * 2, kLongestPause);
            }
            busy = step.has_value();
            changed.notify_all();
        }
        busy = false;
        changed.notify_all();
    }
};

AsyncPublisher::AsyncPublisher(std::unique_ptr<State> state) : state_(std::move(state)) {}
AsyncPublisher::AsyncPublisher(AsyncPublisher&&) noexcept = default;
AsyncPublisher& AsyncPublisher::operator=(AsyncPublisher&&) noexcept = default;

AsyncPublisher::~AsyncPublisher() {
    if (!state_) return;
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
}

Result<AsyncPublisher> AsyncPublisher::start(Publisher publisher, Done done) {
    auto state = std::make_unique<State>(std::move(publisher), std::move(done));
    state->worker = std::jthread([raw = state.get()] {
        const StopScope scope(raw->publisher.state_->stop);
        raw->run();
    });
    return AsyncPublisher(std::move(state));
}

Result<AsyncPublisher::Submitted> AsyncPublisher::submit(const Weights& weights,
                                                         std::uint64_t step) {
    WholeStream stream(weights);
    return submit(stream, step);
}

Result<AsyncPublisher::Submitted> AsyncPublisher::submit(WeightStream& weights,
                                                         std::uint64_t step) {
    const Stopwatch timer;
    auto submitted =
        state_->take([&](PublishDesk& desk) { return desk.prepare_found(weights, step); });
    if (!submitted && submitted.error().kind == ErrorKind::kWrongBase) {
        // The first state, another schema, or a damaged baseline: rare enough to wait for.
        WISP_TRY(flush());
        const auto report = state_->publisher.publish(weights, step);
        state_->tell(report);
        if (!report) return std::unexpected(report.error());
        submitted = Submitted{};
    }
    if (submitted) submitted->blocked_seconds = timer.seconds();
    return submitted;
}

Result<AsyncPublisher::Submitted> AsyncPublisher::submit(ChangeStream& changes,
                                                         std::uint64_t step) {
    const Stopwatch timer;
    auto submitted =
        state_->take([&](PublishDesk& desk) { return desk.prepare_changes(changes, step); });
    if (submitted) submitted->blocked_seconds = timer.seconds();
    return submitted;
}

Result<void> AsyncPublisher::flush() {
    std::unique_lock lock(state_->mutex);
    const std::uint64_t failures = state_->failures;
    const auto settled = [&] {
        return state_->fatal || state_->failures != failures || (!state_->waiting && !state_->busy);
    };
    while (!state_->changed.wait_for(lock, kStopLook, settled)) {
        if (stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked, while waiting");
    }
    if (state_->fatal) return std::unexpected(*state_->fatal);
    if (state_->failures != failures) return std::unexpected(*state_->last_failure);
    return {};
}

}  // namespace wisp
