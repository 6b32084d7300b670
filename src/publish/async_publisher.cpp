// What the trainer calls: handing steps over, and waiting for them.
#include "wisp/async_publisher.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/stopwatch.hpp"
#include "base/try.hpp"
#include "base/without_throwing.hpp"
#include "checkpoint/block_feed.hpp"
#include "publish/publish_worker.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

constexpr Milliseconds kStopLook(50);  // how often a caller that waits looks whether it is to end

Error not_committed(const StepTicket& ticket, const Error& why) {
    Error error = why;
    error.text = fmt::format("step {} is not committed: {}", ticket.step, why.text);
    return error;
}

/// A step that cannot be handed over, for whatever reason, is remembered as missing.
template <class Hand>
Result<AsyncPublisher::Submitted> handed_over(PublishWorker& worker, const StepTicket& ticket,
                                              Hand&& hand) {
    auto submitted = without_throwing(hand);
    if (!submitted) worker.miss(ticket, submitted.error());
    return submitted;
}

}  // namespace

Result<StepTicket> PublishWorker::open(std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    const StepTicket ticket = ledger_.submit(step);
    if (const auto refusal = fatal_ ? fatal_ : std::exchange(refusal_, std::nullopt)) {
        ledger_.miss(ticket, *refusal);
        return std::unexpected(*refusal);
    }
    ++handing_;
    return ticket;
}

Result<PublishWorker::Submitted> PublishWorker::queue(const StepTicket& ticket,
                                                      const Prepare& prepare) {
    const std::lock_guard baseline(steps().baseline_mutex());
    WISP_ASSIGN(PreparedStep prepared, prepare(steps()));
    const std::lock_guard lock(mutex_);
    if (fatal_) return std::unexpected(*fatal_);
    Submitted submitted;
    submitted.folded = waiting_.has_value() || rebasing_;
    waiting_.emplace(std::move(prepared), ticket);
    --handing_;
    changed_.notify_all();
    return submitted;
}

/// kUnavailable when the caller's own work is to end first.
Result<void> PublishWorker::await(std::unique_lock<std::mutex>& lock,
                                  const std::function<bool()>& over) {
    while (!thread_.joinable() && !over()) {
        lock.unlock();
        turn();
        lock.lock();
    }
    while (!changed_.wait_for(lock, kStopLook, over)) {
        if (stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked, while waiting");
    }
    return {};
}

Result<void> PublishWorker::publish_now(const StepTicket& ticket, WeightStream& weights) {
    {
        std::unique_lock lock(mutex_);
        const std::uint64_t failures = failures_;
        WISP_TRY(await(
            lock, [&] { return fatal_ || failures_ != failures || (!sending_ && !waiting_); }));
        if (fatal_) return std::unexpected(*fatal_);
        if (failures_ != failures) return std::unexpected(*last_failure_);
    }
    const std::lock_guard writer_lock(writer_mutex_);
    const auto report = publisher_.publish(weights, ticket.step);
    tell(report);
    const std::lock_guard lock(mutex_);
    needs_reconcile_ = writer().needs_reconcile();
    changed_.notify_all();
    if (!report) {
        if (report.error().kind == ErrorKind::kFenced) fatal_ = report.error();
        return std::unexpected(report.error());
    }
    ledger_.commit(ticket);
    last_commit_ = now_();
    --handing_;
    return {};
}

Result<AsyncPublisher::Submitted> PublishWorker::submit(WeightStream& weights, std::uint64_t step) {
    const Stopwatch timer;
    WISP_ASSIGN(const StepTicket ticket, open(step));
    auto submitted = handed_over(*this, ticket, [&]() -> Result<Submitted> {
        auto queued =
            queue(ticket, [&](StepPublisher& steps) { return steps.prepare_found(weights, step); });
        if (queued || queued.error().kind != ErrorKind::kWrongBase) return queued;
        // The first state, another schema, or a damaged baseline: rare enough to wait for.
        WISP_TRY(publish_now(ticket, weights));
        return Submitted{};
    });
    if (submitted) submitted->blocked_seconds = timer.seconds();
    return submitted;
}

void PublishWorker::miss(const StepTicket& ticket, const Error& why) {
    const std::lock_guard lock(mutex_);
    ledger_.miss(ticket, why);
    --handing_;
    changed_.notify_all();
}

Result<void> PublishWorker::flush(std::optional<Milliseconds> time) {
    std::unique_lock lock(mutex_);
    const StepTicket last = ledger_.submitted();
    const std::uint64_t failures = failures_;
    const auto over = [&] {
        return ledger_.has_committed(last) || fatal_ || idle() || (!time && failures_ != failures);
    };
    ++awaited_;
    changed_.notify_all();
    if (time) {
        changed_.wait_for(lock, *time, over);
    } else if (auto waited = await(lock, over); !waited) {
        --awaited_;
        return waited;
    }
    --awaited_;
    if (const auto refusal = std::exchange(refusal_, std::nullopt)) {
        return std::unexpected(*refusal);
    }
    if (ledger_.has_committed(last)) return {};
    if (fatal_) return std::unexpected(not_committed(last, *fatal_));
    if (const auto& missed = ledger_.missed(); missed && idle()) {
        return std::unexpected(not_committed(missed->ticket, missed->why));
    }
    if (failures_ != failures || pause_.count() > 0) {
        return std::unexpected(not_committed(last, *last_failure_));
    }
    return std::unexpected(
        not_committed(last, {ErrorKind::kUnavailable, "the store has not answered in time"}));
}

std::optional<std::uint64_t> PublishWorker::uncommitted() const {
    const std::lock_guard lock(mutex_);
    const StepTicket& last = ledger_.submitted();
    return ledger_.has_committed(last) ? std::nullopt : std::optional(last.step);
}

bool PublishWorker::stop_within(Milliseconds time) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    thread_.request_stop();
    changed_.notify_all();
    return changed_.wait_for(lock, time, [&] { return ended_; });
}

AsyncPublisher::AsyncPublisher(std::unique_ptr<PublishWorker> worker)
    : worker_(std::move(worker)) {}
AsyncPublisher::AsyncPublisher(AsyncPublisher&&) noexcept = default;
AsyncPublisher& AsyncPublisher::operator=(AsyncPublisher&&) noexcept = default;
AsyncPublisher::~AsyncPublisher() = default;

Result<AsyncPublisher> AsyncPublisher::start(Publisher publisher, Done done) {
    auto worker = std::make_unique<PublishWorker>(std::move(publisher), std::move(done));
    WISP_TRY(worker->start());
    return AsyncPublisher(std::move(worker));
}

Result<AsyncPublisher::Submitted> AsyncPublisher::submit(const Weights& weights,
                                                         std::uint64_t step) {
    WholeStream stream(weights);
    return submit(stream, step);
}

Result<AsyncPublisher::Submitted> AsyncPublisher::submit(WeightStream& weights,
                                                         std::uint64_t step) {
    return worker_->submit(weights, step);
}

Result<AsyncPublisher::Submitted> AsyncPublisher::submit(ChangeStream& changes,
                                                         std::uint64_t step) {
    const Stopwatch timer;
    WISP_ASSIGN(const StepTicket ticket, worker_->open(step));
    auto submitted = handed_over(*worker_, ticket, [&] {
        return worker_->queue(
            ticket, [&](StepPublisher& steps) { return steps.prepare_changes(changes, step); });
    });
    if (submitted) submitted->blocked_seconds = timer.seconds();
    return submitted;
}

void AsyncPublisher::miss(std::uint64_t step, const Error& why) {
    if (const auto ticket = worker_->open(step)) worker_->miss(*ticket, why);
}

Result<void> AsyncPublisher::flush() {
    return worker_->flush(std::nullopt);
}

Result<void> AsyncPublisher::flush_within(Milliseconds time) {
    return worker_->flush(time);
}

std::optional<std::uint64_t> AsyncPublisher::uncommitted() const {
    return worker_->uncommitted();
}

bool AsyncPublisher::stop_within(Milliseconds time) {
    return worker_->stop_within(time);
}

}  // namespace wisp
