// The asynchronous publisher's queue and the thread that empties it. Without that thread, which
// only start() makes, a caller that waits for the queue does its work: so a simulation can own
// every step.
//
// Three locks, taken in this order: `writer_mutex_` by the thread that talks to the store, over all
// its requests; steps().baseline_mutex() for the weights that the next delta is made against; and
// `mutex_` for the queue. submit() takes the last two alone, and nobody fetches, uploads or
// codes with one of those.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "publish/publisher_state.hpp"
#include "publish/step_ledger.hpp"
#include "wisp/async_publisher.hpp"

namespace wisp {

class PublishWorker {
  public:
    using Prepare = std::function<Result<PreparedStep>(StepPublisher&)>;
    using Submitted = AsyncPublisher::Submitted;
    using Time = std::chrono::steady_clock::time_point;
    using Now = std::function<Time()>;

    PublishWorker(Publisher publisher, AsyncPublisher::Done done,
                  Now now = std::chrono::steady_clock::now);
    ~PublishWorker();
    Result<void> start();

    /// Whether turn() would do anything now, but for the pause after a failure.
    bool has_work() const;
    /// One try at what is due: a step, finding out what became of one, or a heartbeat.
    void turn();

    Result<Submitted> submit(WeightStream& weights, std::uint64_t step);
    /// A step is on its way in; ends with queue(), publish_now() or miss().
    Result<StepTicket> open(std::uint64_t step);
    /// Prepares the step against the baseline and puts it where the thread finds it.
    Result<Submitted> queue(const StepTicket& ticket, const Prepare& prepare);
    /// Commits the step whole, on the caller's thread, when nothing is under way.
    Result<void> publish_now(const StepTicket& ticket, WeightStream& weights);
    void miss(const StepTicket& ticket, const Error& why);

    /// Without a time it ends at the first failure.
    Result<void> flush(std::optional<Milliseconds> time);
    std::optional<std::uint64_t> uncommitted() const;
    bool stop_within(Milliseconds time);

  private:
    struct Queued {
        PreparedStep step;
        StepTicket ticket;
        bool in_doubt = false;  // a commit of it got no answer, and may turn up yet
    };

    StepPublisher& steps() { return *publisher_.state_->steps; }
    RunWriter& writer() { return steps().writer(); }
    bool idle() const { return !sending_ && !waiting_ && handing_ == 0; }
    bool is_due() const;

    Result<void> await(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over);
    void run();
    bool await_work(std::unique_lock<std::mutex>& lock);
    bool rest(std::unique_lock<std::mutex>& lock) const;
    Result<void> work();
    void note_outcome(const Result<void>& worked);

    Result<void> send();
    Result<void> find_footing();
    Result<void> beat();
    void advance(PublishReport& report);
    bool needs_rebase() const;
    void rebase_waiting();
    void drop_stranded(const Error& why);
    void tell(const Result<PublishReport>& result);

    Publisher publisher_;
    AsyncPublisher::Done done_;
    Now now_;
    std::optional<Milliseconds> beat_every_;
    std::mutex writer_mutex_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    // All below is guarded by mutex_, except that the thread alone changes sending_, and may read
    // it without.
    StepLedger ledger_;
    std::optional<Queued> waiting_;  // the newest step that nobody works on yet
    std::optional<Queued> sending_;
    bool rebasing_ = false;  // what waited is being put onto what was committed
    unsigned handing_ = 0;   // submissions under way
    unsigned awaited_ = 0;   // callers of flush()
    bool needs_reconcile_ = false;
    bool stopping_ = false;
    bool ended_ = false;
    std::optional<Error> fatal_;
    std::optional<Error> refusal_;  // the listener's, until somebody was told
    std::optional<Error> last_failure_;
    std::uint64_t failures_ = 0;
    Milliseconds pause_{0};  // before the next try; 0 after a success
    Time last_commit_ = now_();
    std::jthread thread_;
};

}  // namespace wisp
