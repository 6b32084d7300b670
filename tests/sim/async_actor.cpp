// The life of a trainer that publishes in the background: steps are handed over, also while an
// upload is under way, and what flush() vouches for has to be in the log.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "checkpoint/block_feed.hpp"
#include "publish/publish_worker.hpp"
#include "sim/actors.hpp"
#include "sim/training.hpp"
#include "sim/writer_actor.hpp"
#include "wisp/publisher.hpp"

namespace wisp::sim {
namespace {

class AsyncActor {
  public:
    AsyncActor(World& world, Actor& actor, std::string prefix)
        : world_(world),
          actor_(actor),
          prefix_(std::move(prefix)),
          random_(world.fork_random()),
          door_(world.open_door(actor, prefix_)),
          training_(world.bank(), random_),
          steps_left_(6 + random_.below(24)),
          pause_ms_(random_.chance(0.3) ? 10'000 : 1'000) {
        actor_.folder = world_.folder() / actor_.name;
        std::filesystem::create_directories(actor_.folder);
        options_.anchor_every = random_.below(5);
        options_.threads = options_.parallel_uploads = 1;
        if (random_.chance(0.4)) options_.expires_after = Milliseconds(60'000);
    }

    void session() {
        // It lives in memory, and what it remembers of itself as a writer dies with it.
        std::error_code ignored;
        std::filesystem::remove_all(actor_.folder / "scratch", ignored);
        door_.store->rename(fmt::format("{}#{}", actor_.name, lives_++));
        MemoryReplicaOptions options;
        options.threads = 1;
        options.scratch = actor_.folder / "scratch";
        auto opened = open_memory_replica(options);
        if (!opened) return world_.blame(fmt::format("{}: {}", actor_.name, opened.error().text));
        HighWater mark;
        WatchedReplica baseline(std::move(*opened), actor_, world_.observer(actor_, prefix_), mark);
        for (bool again = true; again;) again = write(baseline);
    }

  private:
    struct Handed {
        StateDigest state;
        std::uint64_t step = 0;
    };

    bool working() const { return steps_left_ > 0 && world_.weather() == Weather::kStorm; }

    void pause() {
        world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(pause_ms_)));
    }

    /// False: the actor is through.
    bool failed(const Error& error, std::string_view what) {
        const ErrorKind kind = error.kind;
        world_.tell(actor_, fmt::format("{} fails: {}: {}", what, name_of(kind), error.text));
        if (kind == ErrorKind::kFenced) {
            ended_ = true;
            if (!world_.ledger().may_be_fenced(prefix_, door_.store->author())) {
                world_.blame(fmt::format("{} is told that it was fenced, by itself: {}",
                                         actor_.name, error.text));
                return false;
            }
            options_.take_over = random_.chance(0.5);
            return working() && options_.take_over;
        }
        if (kind == ErrorKind::kDenied && world_.plan().is_signed) {
            ended_ = true;  // by the clock: it starts again with the newest certificate
            options_.take_over = random_.chance(0.5);
            return working();
        }
        if (kind == ErrorKind::kWrongBase && gave_up_) return true;
        // A commit whose answer was lost may turn up below a step that was made without it.
        if (kind == ErrorKind::kConflict || may_fail(world_.plan(), kind, began_)) return true;
        world_.blame(fmt::format("{} may not fail to {}: {}: {}", actor_.name, what, name_of(kind),
                                 error.text));
        return false;
    }

    bool write(WatchedReplica& baseline) {
        options_.run = world_.run_options(door_);
        options_.signer = world_.signer();
        began_ = world_.weather();
        ended_ = gave_up_ = false;
        auto publisher = Publisher::open(door_.run, baseline, options_);
        if (!publisher) {
            if (!failed(publisher.error(), "open a publisher")) return false;
            pause();
            return working();
        }
        options_.take_over = false;
        held_ = publisher->at().state;
        least_ = publisher->next_step();
        const auto told = [&](const Result<PublishReport>& report) -> Result<void> {
            check_told(report);
            return {};
        };
        const auto now = [&] {
            return PublishWorker::Time(Milliseconds(world_.scheduler().now_ms()));
        };
        PublishWorker worker(std::move(*publisher), told, now);
        const Interruptions interruptions(*this, worker);
        return train(worker);
    }

    bool train(PublishWorker& worker) {
        while (working()) {
            if (random_.chance(0.04)) break;  // a clean restart
            began_ = world_.weather();
            const World::Busy busy(world_, actor_);
            if (!hand_over(worker, [&](WeightStream& stream, std::uint64_t step) {
                    return worker.submit(stream, step);
                })) {
                return false;
            }
            while (!ended_ && worker.has_work() && random_.chance(0.6)) worker.turn();
            if (ended_) break;
            if (random_.chance(0.2) && !flush(worker)) return false;
            if (ended_) break;
            pause();
        }
        return close(worker);
    }

    /// What was handed over is committed, or said to be lost; in fair weather it is committed.
    bool close(PublishWorker& worker) {
        for (unsigned tries = 0; !ended_ && worker.uncommitted(); ++tries) {
            began_ = world_.weather();
            if (!flush(worker)) return false;
            // A step that was given up comes with the next one, which nobody hands over here.
            if (repeated_) break;
            if (tries == 100) {
                world_.blame(fmt::format("{} never gets its last step committed", actor_.name));
                return false;
            }
            pause();
        }
        return working();
    }

    template <class Submit>
    bool hand_over(PublishWorker& worker, const Submit& submit) {
        --steps_left_;
        const TrainedStep step = training_.next(held_, least_);
        handed_.push_back({world_.bank().remember(step.model), step.step});
        const std::size_t number = handed_.size();
        WholeStream stream(step.model);
        const auto submitted = submit(stream, step.step);
        if (submitted) return true;
        missed_ = submitted.error().text;
        // What was handed over since, while this one waited, contains it.
        if (!worker.uncommitted() && handed_.size() == number) {
            world_.blame(fmt::format("{} could not hand step {} over, and flush() would not say so",
                                     actor_.name, step.step));
            return false;
        }
        return failed(submitted.error(), "hand a step over");
    }

    bool flush(PublishWorker& worker) {
        const World::Busy busy(world_, actor_);
        const std::size_t asked = handed_.size() - 1;
        const std::uint64_t requests = door_.store->requests();
        const auto flushed = worker.flush(std::nullopt);
        // It says again what went wrong when the step was handed over: nothing was tried, or only
        // the steps before it.
        repeated_ = !flushed && (door_.store->requests() == requests ||
                                 (!missed_.empty() && flushed.error().text.ends_with(missed_)));
        if (repeated_) return true;
        if (!flushed) return failed(flushed.error(), "flush");
        // A step that was handed over since contains what it was asked about.
        for (std::size_t i = asked; i < handed_.size(); ++i) {
            if (is_committed(handed_[i])) return true;
        }
        world_.blame(fmt::format("{} was told that step {} is committed, and it is not",
                                 actor_.name, handed_[asked].step));
        return false;
    }

    bool is_committed(const Handed& handed) {
        const RunLedger* ledger = world_.ledger().find(prefix_);
        return std::ranges::any_of(ledger->rows, [&](const auto& row) {
            const Commit& commit = row.second.commit;
            return commit.makes_state() && commit.state.digest == handed.state &&
                   commit.state.step == handed.step;
        });
    }

    void check_told(const Result<PublishReport>& report) {
        if (!report) {
            world_.tell(actor_, "is told of a failure: " + report.error().text);
            return;
        }
        const auto& rows = world_.ledger().find(prefix_)->rows;
        const auto row = rows.find(report->seq);
        world_.tell(actor_, fmt::format("is told of step {} as commit {} ({})", report->step,
                                        report->seq, report->kind_text()));
        if (row != rows.end() && row->second.commit.state.digest == report->state &&
            row->second.commit.state.step == report->step) {
            return;
        }
        world_.blame(fmt::format("{} is told that step {} is commit {}, which is another's",
                                 actor_.name, report->step, report->seq));
    }

    /// The trainer goes on while a request is under way: now and then it hands a step over.
    class Interruptions {
      public:
        Interruptions(AsyncActor& trainer, PublishWorker& worker) : trainer_(trainer) {
            trainer_.door_.store->during_request = [this, &worker] { interrupt(worker); };
        }
        Interruptions(const Interruptions&) = delete;
        Interruptions& operator=(const Interruptions&) = delete;
        ~Interruptions() { trainer_.door_.store->during_request = nullptr; }

      private:
        void interrupt(PublishWorker& worker) {
            if (inside_ || !trainer_.working() || !trainer_.random_.chance(0.08)) return;
            inside_ = true;
            (void)trainer_.hand_over(worker, [&](WeightStream& stream, std::uint64_t step) {
                return queue_only(worker, stream, step);
            });
            inside_ = false;
        }
        /// What would wait for the upload under way is given up instead: there is one thread.
        Result<PublishWorker::Submitted> queue_only(PublishWorker& worker, WeightStream& stream,
                                                    std::uint64_t step) {
            const auto ticket = worker.open(step);
            if (!ticket) return std::unexpected(ticket.error());
            auto queued = worker.queue(
                *ticket, [&](StepPublisher& steps) { return steps.prepare_found(stream, step); });
            if (!queued) {
                worker.miss(*ticket, queued.error());
                if (queued.error().kind == ErrorKind::kWrongBase) {
                    trainer_.gave_up_ = true;
                    return PublishWorker::Submitted{};
                }
            }
            return queued;
        }

        AsyncActor& trainer_;
        bool inside_ = false;
    };

    World& world_;
    Actor& actor_;
    std::string prefix_;
    Random random_;
    World::Door door_;
    Training training_;
    std::uint64_t steps_left_;
    std::uint64_t pause_ms_;
    PublishOptions options_;
    std::uint64_t lives_ = 0;
    StateDigest held_;
    std::uint64_t least_ = 0;
    std::vector<Handed> handed_;       // all steps, in order
    Weather began_ = Weather::kStorm;  // of the call at hand
    bool gave_up_ = false;             // a step that would have had to wait for an upload
    std::string missed_;               // why the last step that failed to be handed over did
    bool repeated_ = false;            // the failure of the last flush() was an old one
    bool ended_ = false;               // this writer is through, and another has to be opened
};

}  // namespace

void add_async_trainer(World& world, std::string name, std::string prefix,
                       std::int64_t starts_in_ms) {
    add_writer<AsyncActor>(world, std::move(name), std::move(prefix), starts_in_ms);
}

}  // namespace wisp::sim
