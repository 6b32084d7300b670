// A trainer's life.
#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "sim/actors.hpp"
#include "sim/training.hpp"
#include "sim/writer_actor.hpp"
#include "wisp/publisher.hpp"

namespace wisp::sim {
namespace {

class TrainerActor {
  public:
    TrainerActor(World& world, Actor& actor, std::string prefix)
        : world_(world),
          actor_(actor),
          prefix_(std::move(prefix)),
          random_(world.fork_random()),
          door_(world.open_door(actor, prefix_)),
          training_(world.bank(), random_),
          in_memory_(random_.chance(0.3)),
          durable_(random_.chance(0.5)),
          has_side_file_(random_.chance(0.3)),
          steps_left_(4 + random_.below(24)),
          pause_ms_(random_.chance(0.3) ? 10'000 : 1'000) {
        actor_.folder = world_.folder() / actor_.name;
        std::filesystem::create_directories(actor_.folder);
        actor_.keeps_synced = in_memory_ || durable_;
        // Nothing depends on these, but the seeds in regression_seeds.txt do.
        if (!random_.chance(0.25)) (void)random_.chance(0.5);
        options_.anchor_every = random_.below(5);
        options_.part_bytes = random_.chance(0.2) ? 200 : std::uint64_t{1} << 30;
        options_.threads = 1;
        options_.parallel_uploads = 1;
        if (random_.chance(0.2)) options_.expires_after = Milliseconds(60'000);
    }

    void session() {
        if (in_memory_) {
            mark_ = {};
            // What it remembers of itself as a writer dies with it.
            std::error_code ignored;
            std::filesystem::remove_all(actor_.folder / "scratch", ignored);
        }
        if (in_memory_ || lives_ == 0) {
            door_.store->rename(fmt::format("{}#{}", actor_.name, lives_));
        }
        ++lives_;
        if (random_.chance(0.1)) {
            world_.damage(actor_, actor_.folder / "baseline" / "model.safetensors");
        }
        auto opened = open_baseline();
        if (!opened) return world_.blame(fmt::format("{}: {}", actor_.name, opened.error().text));
        WatchedReplica baseline(std::move(*opened), actor_, world_.observer(actor_, prefix_),
                                mark_);
        for (bool again = true; again;) again = write(baseline);
    }

  private:
    Result<std::unique_ptr<Replica>> open_baseline() {
        if (in_memory_) {
            MemoryReplicaOptions options;
            options.threads = 1;
            options.scratch = actor_.folder / "scratch";
            return open_memory_replica(options);
        }
        FolderReplicaOptions options;
        options.threads = 1;
        options.durable = durable_;
        return open_folder_replica(actor_.folder / "baseline", options);
    }

    bool working() const { return steps_left_ > 0 && world_.weather() == Weather::kStorm; }

    void pause() {
        world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(pause_ms_)));
    }

    /// False: the actor is through.
    bool failed(const Error& error, std::string_view what) {
        world_.tell(actor_, fmt::format("{} fails: {}: {}", what, name_of(error.kind), error.text));
        if (error.kind == ErrorKind::kFenced) {
            if (!world_.ledger().may_be_fenced(prefix_, door_.store->author())) {
                world_.blame(fmt::format("{} is told that it was fenced, by itself: {}",
                                         actor_.name, error.text));
                return false;
            }
            fenced_ = true;
            if (!working() || random_.chance(0.5)) return false;
            options_.take_over = true;
            return true;
        }
        if (!may_fail(world_.plan(), error.kind, began_)) {
            world_.blame(fmt::format("{} may not fail to {}: {}: {}", actor_.name, what,
                                     name_of(error.kind), error.text));
            return false;
        }
        if (error.kind == ErrorKind::kDenied) {
            // Its certificate has ended or was replaced; the newest may be for another key.
            refused_ = true;
            options_.take_over = random_.chance(0.5);
        }
        return working();
    }

    bool write(WatchedReplica& baseline) {
        options_.run = world_.run_options(door_);
        options_.signer = world_.signer();
        if (has_side_file_) {
            const auto side = actor_.folder / "config.json";
            const std::string text = fmt::format("{{\"variant\":{}}}", random_.below(2));
            std::ofstream(side) << text;
            world_.ledger().vouch_for(text);
            options_.side_files = {side};
        }
        began_ = world_.weather();
        auto publisher = Publisher::open(door_.run, baseline, options_);
        if (!publisher) {
            if (!failed(publisher.error(), "open a publisher")) return false;
            pause();
            return true;
        }
        fenced_ = refused_ = options_.take_over = false;
        while (working()) {
            if (random_.chance(0.04)) return true;  // a clean restart
            began_ = world_.weather();
            if (random_.chance(0.06)) {
                if (const auto beat = publisher->heartbeat(); !beat) {
                    if (!failed(beat.error(), "heartbeat")) return false;
                    if (fenced_) return reopen(*publisher);
                }
            }
            if (!publish(*publisher)) return false;
            if (fenced_) return reopen(*publisher);
            pause();
            if (refused_) return true;
        }
        return false;
    }

    /// A fenced writer stays fenced, whatever it tries.
    bool reopen(Publisher& publisher) {
        if (!training_.began()) return true;
        const TrainedStep& last = training_.last();
        began_ = world_.weather();
        const auto report = publisher.publish(last.model, last.step + 1);
        if (report) {
            world_.blame(fmt::format("{} was fenced and publishes all the same", actor_.name));
            return false;
        }
        if (!may_fail(world_.plan(), report.error().kind, began_) &&
            report.error().kind != ErrorKind::kFenced) {
            world_.blame(fmt::format("{} was fenced and now fails with {}", actor_.name,
                                     name_of(report.error().kind)));
            return false;
        }
        pause();
        return true;
    }

    bool publish(Publisher& publisher) {
        --steps_left_;
        const TrainedStep step = training_.next(publisher.at().state, publisher.next_step());
        const StateDigest digest = world_.bank().remember(step.model);
        began_ = world_.weather();
        const World::Busy busy(world_, actor_);
        const auto report = publisher.publish(step.model, step.step);
        if (!report) {
            if (random_.chance(0.6)) training_.repeat();
            return failed(report.error(), "publish");
        }
        world_.tell(actor_, fmt::format("published step {} as commit {} ({})", step.step,
                                        report->seq, report->kind_text()));
        const RunLedger* ledger = world_.ledger().find(prefix_);
        const auto row = ledger->rows.find(report->seq);
        const bool right = row != ledger->rows.end() && row->second.commit.makes_state() &&
                           row->second.commit.state.digest == digest &&
                           row->second.commit.state.step == step.step &&
                           (report->present || (row->second.author == door_.store->author() &&
                                                row->second.commit.epoch == report->epoch));
        if (right) return true;
        world_.blame(fmt::format("{} believes that step {} is commit {}, which is another's",
                                 actor_.name, step.step, report->seq));
        return false;
    }

    World& world_;
    Actor& actor_;
    std::string prefix_;
    Random random_;
    World::Door door_;
    Training training_;
    bool in_memory_;
    bool durable_;
    bool has_side_file_;
    std::uint64_t steps_left_;
    std::uint64_t pause_ms_;
    PublishOptions options_;
    HighWater mark_;
    std::uint64_t lives_ = 0;
    Weather began_ = Weather::kStorm;  // of the call at hand
    bool fenced_ = false;
    bool refused_ = false;
};

}  // namespace

void add_trainer(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms) {
    add_writer<TrainerActor>(world, std::move(name), std::move(prefix), starts_in_ms);
}

}  // namespace wisp::sim
