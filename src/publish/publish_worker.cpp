#include "publish/publish_worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "base/try.hpp"
#include "base/without_throwing.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

constexpr Milliseconds kFirstPause(200);
constexpr Milliseconds kLongestPause(30'000);
// While somebody waits in flush(): a store that is back should be noticed before they give up.
constexpr Milliseconds kLongestAwaitedPause(2'000);
// How often newer steps may come in between before one is held up, so that a trainer without a
// pause between its steps cannot keep the baseline where it is for ever.
constexpr int kFreeRebases = 8;

}  // namespace

PublishWorker::PublishWorker(Publisher publisher, AsyncPublisher::Done done, Now now)
    : publisher_(std::move(publisher)), done_(std::move(done)), now_(std::move(now)) {
    // Two may fail before replicas call the run stale.
    if (const auto life = writer().commit_life()) {
        beat_every_ = std::max(Milliseconds(1), Milliseconds(life->count() / 3));
    }
}

PublishWorker::~PublishWorker() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    thread_.request_stop();
    changed_.notify_all();
}

Result<void> PublishWorker::start() {
    return without_throwing([&]() -> Result<void> {
        thread_ = std::jthread([this](std::stop_token ending) {
            const StopScope around(publisher_.state_->stop);
            const StopScope scope(std::move(ending));
            run();
        });
        return {};
    });
}

void PublishWorker::run() {
    std::unique_lock lock(mutex_);
    while (await_work(lock)) {
        lock.unlock();
        turn();
        lock.lock();
    }
    ended_ = true;
    changed_.notify_all();
}

void PublishWorker::turn() {
    {
        // A newer step against the same state takes the place of one that could not be sent, unless
        // that may have been committed unnoticed.
        const std::lock_guard lock(mutex_);
        if (waiting_ && !(sending_ && sending_->in_doubt)) {
            sending_ = std::move(waiting_);
            waiting_.reset();
        }
    }
    const std::lock_guard writer_lock(writer_mutex_);
    const Result<void> worked = without_throwing([&] { return work(); });
    if (!worked && worked.error().kind == ErrorKind::kInternal) writer().set_needs_reconcile(true);
    // A caller that waits in flush() may rely on everything having been told.
    if (!worked) tell(std::unexpected(worked.error()));
    const std::lock_guard lock(mutex_);
    note_outcome(worked);
    changed_.notify_all();
}

bool PublishWorker::is_due() const {
    if (fatal_) return false;
    if (sending_ || waiting_ || needs_reconcile_) return true;
    return beat_every_ && now_() >= last_commit_ + *beat_every_;
}

bool PublishWorker::has_work() const {
    const std::lock_guard lock(mutex_);
    return is_due();
}

/// False: stop.
bool PublishWorker::await_work(std::unique_lock<std::mutex>& lock) {
    if (pause_.count() > 0 && !rest(lock)) return false;
    while (!stopping_) {
        if (is_due()) return true;
        if (fatal_ || !beat_every_) {
            changed_.wait(lock);
        } else {
            changed_.wait_until(lock, last_commit_ + *beat_every_);
        }
    }
    return false;
}

/// Nothing but the end of the publisher cuts a pause short: not even a new step.
bool PublishWorker::rest(std::unique_lock<std::mutex>& lock) const {
    const Time start = now_();
    while (!stopping_) {
        const Time end = start + (awaited_ > 0 ? std::min(pause_, kLongestAwaitedPause) : pause_);
        if (now_() >= end) return true;
        changed_.wait_until(lock, end);
    }
    return false;
}

Result<void> PublishWorker::work() {
    if (sending_) return send();
    if (writer().needs_reconcile()) return steps().reconcile();
    return beat();
}

void PublishWorker::note_outcome(const Result<void>& worked) {
    needs_reconcile_ = writer().needs_reconcile();
    if (worked) {
        pause_ = Milliseconds(0);
        return;
    }
    if (sending_) sending_->in_doubt = sending_->in_doubt || needs_reconcile_;
    last_failure_ = worked.error();
    ++failures_;
    if (worked.error().kind == ErrorKind::kFenced) {
        fatal_ = worked.error();
        for (auto* queued : {&sending_, &waiting_}) {
            if (*queued) ledger_.miss((*queued)->ticket, *fatal_);
            queued->reset();
        }
    }
    pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
}

Result<void> PublishWorker::send() {
    PublishReport report;
    const PreparedStep& step = sending_->step;
    if (writer().needs_reconcile()) WISP_TRY(find_footing());
    if (writer().needs_reconcile() && steps().is_head(step)) {
        // The answer to its commit was lost; the commit was not.
        const Commit& commit = writer().head().commit;
        report.seq = commit.state.seq;
        report.epoch = commit.epoch;
        report.step = step.step;
        report.kind = CommitKind::kDelta;
        report.state = step.diff.result;
        report.changed_elements = step.diff.changed_elements;
        report.total_elements = step.diff.total_elements;
        writer().set_needs_reconcile(false);
    } else {
        auto committed = steps().commit(sending_->step);
        if (!committed) {
            // Whatever was in the way has to be looked at first.
            if (committed.error().kind == ErrorKind::kConflict) writer().set_needs_reconcile(true);
            return std::unexpected(std::move(committed).error());
        }
        report = std::move(*committed);
    }
    advance(report);
    // The baseline holds what was committed, and nobody but this thread changes it.
    steps().anchor_if_due(nullptr, report);
    tell(report);
    const std::lock_guard lock(mutex_);
    ledger_.commit(sending_->ticket);
    sending_.reset();
    last_commit_ = now_();
    return {};
}

/// Learns what the log holds. If the run has gone on to a state that the steps here were not made
/// from, they can only be made again, from weights that only the trainer has.
Result<void> PublishWorker::find_footing() {
    WISP_TRY(writer().look());
    const PreparedStep& step = sending_->step;
    if (!steps().is_head(step)) WISP_TRY(steps().stand_on_head());
    if (steps().is_head(step) || step.diff.base == steps().at().state) return {};
    const Error why{ErrorKind::kConflict,
                    fmt::format("{} has gone on to another state than step {} was made from; the "
                                "next step brings what it held",
                                shown(writer().log().run()), sending_->ticket.step)};
    drop_stranded(why);
    return std::unexpected(why);
}

void PublishWorker::drop_stranded(const Error& why) {
    const std::lock_guard baseline(steps().baseline_mutex());
    const std::lock_guard lock(mutex_);
    ledger_.miss(sending_->ticket, why);
    sending_.reset();
    if (!waiting_ || waiting_->step.diff.base == steps().at().state) return;
    ledger_.miss(waiting_->ticket, why);
    waiting_.reset();
}

/// The commit is made: what waits is put onto it, then the baseline follows. The trainer may hand
/// over newer steps meanwhile, made from the state before, which are put onto it in their turn.
void PublishWorker::advance(PublishReport& report) {
    const PreparedStep& step = sending_->step;
    for (int tries = 0;; ++tries) {
        if (tries < kFreeRebases) rebase_waiting();
        const std::lock_guard baseline(steps().baseline_mutex());
        if (tries >= kFreeRebases) rebase_waiting();
        if (tries < kFreeRebases && needs_rebase()) continue;
        // Where the baseline had to be fetched anew, it may be there already.
        if (steps().at().state_seq != report.seq) steps().advance(step, report);
        return;
    }
}

bool PublishWorker::needs_rebase() const {
    const std::lock_guard lock(mutex_);
    const DiffReport& sent = sending_->step.diff;
    return waiting_ && sent.changed_elements > 0 && waiting_->step.diff.base != sent.result;
}

/// With no lock on the queue: it may take as long as coding does, and submit() goes on. The
/// baseline is still where both steps were made from, and only this thread moves it.
void PublishWorker::rebase_waiting() {
    if (!needs_rebase()) return;
    std::optional<Queued> taken;
    {
        const std::lock_guard lock(mutex_);
        taken = std::exchange(waiting_, std::nullopt);
        rebasing_ = true;
    }
    auto rebased = without_throwing([&] { return steps().rebase(sending_->step, taken->step); });
    const std::lock_guard lock(mutex_);
    rebasing_ = false;
    if (waiting_) return;  // a newer one holds everything
    if (rebased) {
        taken->step = std::move(*rebased);
        waiting_ = std::move(taken);
        return;
    }
    // What it held is in the trainer's weights still; the next step brings it.
    ledger_.miss(taken->ticket, rebased.error());
    last_failure_ = rebased.error();
    ++failures_;
}

Result<void> PublishWorker::beat() {
    {
        const std::lock_guard lock(mutex_);
        // The trainer's thread may have committed since this one saw that a heartbeat is due.
        if (!beat_every_ || now_() < last_commit_ + *beat_every_) return {};
    }
    WISP_TRY(steps().heartbeat());
    PublishReport report;
    report.kind = CommitKind::kHeartbeat;
    const Commit& head = writer().head().commit;
    report.seq = head.seq;
    report.epoch = head.epoch;
    report.step = head.state.step;
    report.state = head.state.digest;
    tell(report);
    const std::lock_guard lock(mutex_);
    last_commit_ = now_();
    return {};
}

void PublishWorker::tell(const Result<PublishReport>& result) {
    if (!done_) return;
    const Result<void> heard = without_throwing([&] { return done_(result); });
    if (heard) return;
    const std::lock_guard lock(mutex_);
    refusal_ = heard.error();
}

}  // namespace wisp
