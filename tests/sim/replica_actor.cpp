// A replica's life.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <system_error>

#include "sim/actors.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/follower.hpp"

namespace wisp::sim {
namespace {

constexpr int kLastRounds = 4;

class ReplicaActor {
  public:
    ReplicaActor(World& world, Actor& actor, std::string prefix)
        : world_(world),
          actor_(actor),
          prefix_(std::move(prefix)),
          random_(world.fork_random()),
          door_(world.open_door(actor, prefix_)),
          in_memory_(random_.chance(0.3)),
          pause_ms_(random_.chance(0.3) ? 30'000 : 1'500) {
        actor_.folder = world_.folder() / actor_.name;
        std::filesystem::create_directories(actor_.folder);
        actor_.keeps_synced = true;
    }

    void session() {
        // What was in memory is forgotten, and with it how far it was.
        if (in_memory_) mark_ = {};
        if (random_.chance(0.1)) {
            world_.damage(actor_, actor_.folder / "replica" / "model.safetensors");
        }
        auto opened = open_replica();
        if (!opened) return world_.blame(fmt::format("{}: {}", actor_.name, opened.error().text));
        WatchedReplica replica(std::move(*opened), actor_, world_.observer(actor_, prefix_), mark_);
        while (!finished_) follow(replica);
    }

  private:
    Result<std::unique_ptr<Replica>> open_replica() {
        if (in_memory_) {
            MemoryReplicaOptions options;
            options.threads = 1;
            options.scratch = actor_.folder / "scratch";
            return open_memory_replica(options);
        }
        FolderReplicaOptions options;
        options.threads = 1;
        return open_folder_replica(actor_.folder / "replica", options);
    }

    FollowOptions follow_options() {
        FollowOptions options;
        options.run = world_.run_options(door_);
        options.threads = 1;
        options.parallel_fetches = 1;
        options.replica_id = actor_.name;
        const RunLedger* ledger = world_.ledger().find(prefix_);
        const bool closing = world_.weather() == Weather::kClosing;
        mark_.bounded = false;
        if (!closing && random_.chance(0.2) && ledger != nullptr && ledger->head() != nullptr) {
            options.until_step = bound_in(*ledger);
            mark_.bounded = true;
        }
        options.on_event = [this](const FollowEvent& event) -> Result<void> {
            if (event.kind == FollowEvent::Kind::kApplied ||
                event.kind == FollowEvent::Kind::kJoined) {
                world_.count_move();
            }
            return {};
        };
        return options;
    }

    /// A step about to come, or one of the past, which a replica that lost its weights goes to.
    std::uint64_t bound_in(const RunLedger& ledger) {
        const std::uint64_t newest = ledger.head()->commit.state.step;
        if (random_.chance(0.4)) return newest + random_.below(3);
        const auto row = std::next(ledger.rows.begin(),
                                   static_cast<std::ptrdiff_t>(random_.below(ledger.rows.size())));
        return row->second.commit.state.step;
    }

    void pause() {
        world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(pause_ms_)));
    }

    bool failed(const Error& error, std::string_view what) {
        world_.tell(actor_, fmt::format("{} fails: {}", what, error.text));
        if (may_fail(world_.plan(), error.kind, began_)) return true;
        // The step it was told to stop at may be gone, or never have been.
        if (mark_.bounded && error.kind == ErrorKind::kGap) return true;
        world_.blame(fmt::format("{} may not fail to {}: {}: {}", actor_.name, what,
                                 name_of(error.kind), error.text));
        return false;
    }

    void follow(WatchedReplica& replica) {
        began_ = world_.weather();
        if (!in_memory_ && began_ == Weather::kStorm && random_.chance(0.05)) {
            world_.damage(actor_, actor_.folder / "replica" / "model.safetensors");
        }
        auto follower = Follower::open(door_.run, replica, follow_options());
        if (!follower) {
            if (!failed(follower.error(), "open a follower")) finished_ = true;
            if (!finished_) pause();
            return;
        }
        const std::uint64_t rounds = 1 + random_.below(20);
        const bool opened_late = began_ == Weather::kClosing;
        for (std::uint64_t round = 0; round < rounds && !finished_; ++round) {
            began_ = world_.weather();
            const bool closing = began_ == Weather::kClosing;
            if (closing && !opened_late) return;  // once more, and to the very end
            const auto report = follower->catch_up();
            if (!replica.in_doubt()) check_label(*follower, replica);
            if (!report && !failed(report.error(), "catch up")) finished_ = true;
            if (closing) {
                finished_ = finished_ || arrived(*follower);
            } else {
                pause();
            }
        }
    }

    /// What the follower says of itself, what its replica remembers, and what lies in the folder
    /// for any loader to open: one state, bit for bit.
    void check_label(const Follower& follower, const WatchedReplica& replica) {
        const ReplicaRecord& at = follower.at();
        std::string problem = world_.ledger().judge_position(prefix_, at);
        const auto& kept = replica.record();
        if (problem.empty() && kept &&
            (kept->state_seq != at.state_seq || kept->state != at.state)) {
            problem = fmt::format("it says state {}, but its record says {}", at.state_seq,
                                  kept->state_seq);
        }
        if (problem.empty() && !in_memory_ && at.state_seq != 0) {
            const auto files = Checkpoint::open(actor_.folder / "replica");
            if (!files || !world_.bank().holds(*files, at.state)) {
                problem = fmt::format("its folder does not hold the state of commit {}{}",
                                      at.state_seq, files ? "" : ": " + files.error().text);
            }
        }
        if (problem.empty() && !in_memory_) problem = judge_side_file();
        if (!problem.empty()) world_.blame(fmt::format("{}: {}", actor_.name, problem));
    }

    /// A replica holds no byte that nobody trusted has vouched for.
    std::string judge_side_file() const {
        std::ifstream in(actor_.folder / "replica" / "config.json");
        if (!in) return "";
        const std::string text{std::istreambuf_iterator<char>(in), {}};
        return world_.ledger().vouched_for(text) ? "" : "its config.json is nobody's: " + text;
    }

    bool arrived(const Follower& follower) {
        const RunLedger* ledger = world_.ledger().find(prefix_);
        if (ledger == nullptr || ledger->head() == nullptr) return true;
        const Commit& head = ledger->head()->commit;
        if (follower.at().seq == head.seq && follower.at().state_seq == head.state.seq) return true;
        if (++last_rounds_ < kLastRounds) return false;
        world_.blame(fmt::format("{} stays at commit {}, state {}, though the head is {}, state {}",
                                 actor_.name, follower.at().seq, follower.at().state_seq, head.seq,
                                 head.state.seq));
        return true;
    }

    World& world_;
    Actor& actor_;
    std::string prefix_;
    Random random_;
    World::Door door_;
    bool in_memory_;
    std::uint64_t pause_ms_;
    HighWater mark_;
    Weather began_ = Weather::kStorm;  // of the call at hand
    int last_rounds_ = 0;
    bool finished_ = false;
};

}  // namespace

bool may_fail(const SimPlan& plan, ErrorKind kind, Weather weather) {
    // The certificate in force has ended; with the next commit all counts again.
    if (kind == ErrorKind::kDenied) return plan.is_signed && weather != Weather::kClosing;
    if (weather != Weather::kStorm) return false;
    const FaultPlan& faults = plan.faults;
    const bool damage =
        plan.stale || faults.truncated_read + faults.flipped_bit + faults.oversized_read > 0;
    switch (kind) {
        case ErrorKind::kUnavailable: return true;
        case ErrorKind::kNoSpace: return plan.full_disks > 0;
        case ErrorKind::kCorrupt: return damage || plan.destroys;
        case ErrorKind::kGap: return damage || plan.deletes || plan.destroys;
        case ErrorKind::kForked: return plan.stale || plan.deletes || plan.destroys;
        case ErrorKind::kNoRun:
        case ErrorKind::kNotFound: return plan.stale;
        default: return false;
    }
}

void add_replica(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms) {
    world.scheduler().add(
        std::move(name),
        [&world, prefix = std::move(prefix)](Actor& actor) {
            ReplicaActor replica(world, actor, prefix);
            world.live(actor, [&] { replica.session(); });
        },
        starts_in_ms);
}

}  // namespace wisp::sim
