// Starts a branch.
#include <fmt/format.h>

#include "sim/actors.hpp"

namespace wisp::sim {
namespace {

class Brancher {
  public:
    Brancher(World& world, Actor& actor, std::string prefix, std::string branch)
        : world_(world),
          actor_(actor),
          prefix_(std::move(prefix)),
          branch_(std::move(branch)),
          random_(world.fork_random()),
          door_(world.open_door(actor, branch_)) {}

    void session() {
        while (world_.weather() == Weather::kStorm && !done_) {
            attempt();
            world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(4'000)));
        }
    }

  private:
    void attempt() {
        const RunLedger* origin = world_.ledger().find(prefix_);
        if (origin == nullptr || origin->head() == nullptr) return;
        InitOptions options;
        options.run = world_.run_options(door_);
        options.signer = world_.signer();
        if (world_.keys()) options.roots = {world_.keys()->root()};
        options.branch_of = Location{door_.run.store, prefix_, prefix_};
        const StateName& newest = origin->head()->commit.state;
        // Before the first state no step can be asked for.
        if (random_.chance(0.5) && newest.seq != 0) options.branch_step = newest.step;
        const Weather began = world_.weather();
        const World::Busy busy(world_, actor_);
        const auto report = init_run(door_.run, options);
        if (!report) {
            world_.tell(actor_, fmt::format("branch fails: {}", report.error().text));
            const ErrorKind kind = report.error().kind;
            const bool allowed = kind == ErrorKind::kNoRun || kind == ErrorKind::kConflict ||
                                 kind == ErrorKind::kNotFound ||
                                 (kind == ErrorKind::kGap && world_.plan().retention) ||
                                 may_fail(world_.plan(), kind, began);
            if (!allowed) {
                world_.blame(fmt::format("a branch may not fail with {}: {}", name_of(kind),
                                         report.error().text));
            }
            const RunLedger* made = world_.ledger().find(branch_);
            if (made == nullptr || made->head() == nullptr) return;
        }
        done_ = true;
        add_trainer(world_, "on_branch", branch_, static_cast<std::int64_t>(random_.below(2'000)));
        add_replica(world_, "watcher", branch_, static_cast<std::int64_t>(random_.below(2'000)));
        if (world_.plan().retention) add_retention(world_, "branch_keep", branch_, 1'000);
        if (world_.plan().compactor) add_compactor(world_, "branch_pack", branch_, 1'000);
    }

    World& world_;
    Actor& actor_;
    std::string prefix_;
    std::string branch_;
    Random random_;
    World::Door door_;
    bool done_ = false;
};

}  // namespace

void add_brancher(World& world, std::string prefix, std::string branch, std::int64_t starts_in_ms) {
    Actor& added = world.scheduler().add(
        "brancher",
        [&world, prefix = std::move(prefix), branch = std::move(branch)](Actor& actor) {
            Brancher brancher(world, actor, prefix, branch);
            world.live(actor, [&] { brancher.session(); });
        },
        starts_in_ms);
    added.writes = true;
}

}  // namespace wisp::sim
