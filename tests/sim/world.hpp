// One simulation: a store, its actors, and what they must never do; all of it from one seed.
//
// First a storm: faults, kills, stalls, jumping clocks. Then calm: all that are still there must
// come to rest, a new writer must be able to publish, every replica must reach that state, and
// every retained state must be readable.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/keyring.hpp"
#include "sim/local_calls.hpp"
#include "sim/scheduler.hpp"
#include "sim/sim_plan.hpp"
#include "sim/sim_store.hpp"
#include "sim/state_bank.hpp"
#include "sim/synced_disk.hpp"
#include "sim/watched_replica.hpp"
#include "wisp/run.hpp"

namespace wisp::sim {

enum class Weather { kStorm, kCalm, kClosing };

struct Verdict {
    bool passed = true;
    std::string problem;
    std::uint64_t operations = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t commits = 0;
    std::uint64_t moves = 0;
    std::uint64_t most_requests = 0;
};

class World {
  public:
    World(std::uint64_t seed, std::filesystem::path folder);
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    Verdict run();
    Trace& trace() { return trace_; }

    // What actors see.
    const SimPlan& plan() const { return plan_; }
    Scheduler& scheduler() { return scheduler_; }
    StateBank& bank() { return bank_; }
    Ledger& ledger() { return truth_->ledger(); }
    Weather weather() const { return weather_; }
    const std::filesystem::path& folder() const { return folder_; }
    Random fork_random() { return Random(random_.next()); }
    void blame(std::string problem);
    void tell(const Actor& actor, const std::string& what) { trace_.add(actor.name, what); }
    void count_move() { ++moves_; }

    /// The bucket as `actor` sees it.
    struct Door {
        std::shared_ptr<SimStore> store;
        Location run;
        std::shared_ptr<Clock> clock;
    };
    Door open_door(Actor& actor, const std::string& prefix);
    Observer observer(Actor& actor, const std::string& prefix);
    RunOptions run_options(const Door& door);
    /// Of a signed run: who signs now.
    std::optional<RunSigner> signer() const;
    const std::optional<Keyring>& keys() const { return keys_; }
    /// Runs `session` again and again until it ends by itself, bringing the actor's folder back to
    /// what it was when it was killed.
    void live(Actor& actor, const std::function<void()>& session);
    /// A bit of the weights in `checkpoint` falls over while nobody looks.
    void damage(const Actor& actor, const std::filesystem::path& checkpoint);
    Location true_run(const std::string& prefix) const;
    TrueStore& truth() { return *truth_; }
    /// Since when the oldest of all things that are being done has been under way.
    std::int64_t oldest_doing_ms() const;
    /// To be done when the storm is over.
    void mend_later(std::function<void()> mend) { mends_.push_back(std::move(mend)); }

    /// While it lives, `actor` is about one write, and time does not leap over that.
    class Busy {
      public:
        Busy(World& world, Actor& actor) : actor_(actor) {
            actor_.busy_since_ms = world.scheduler().now_ms();
        }
        Busy(const Busy&) = delete;
        Busy& operator=(const Busy&) = delete;
        ~Busy() { actor_.busy_since_ms = 0; }

      private:
        Actor& actor_;
    };

  private:
    void people();
    void calm_down();
    void close();
    void check_retained(const std::string& prefix);
    void publish_once_more(const std::string& prefix);
    bool over() const { return !problem_.empty() || !truth_->ledger().problem().empty(); }
    void die(Actor& actor);
    int before_local_call(LocalCall call);
    void revive(Actor& actor);
    std::int64_t leap_room() const;
    void check_requests();

    std::uint64_t seed_;
    Random random_;
    SimPlan plan_;
    std::filesystem::path folder_;
    Trace trace_;
    StateBank bank_;
    std::optional<Keyring> keys_;
    std::shared_ptr<TrueStore> truth_;
    std::shared_ptr<ObjectHistory> history_;
    LateWrites late_;
    LocalWatch local_;
    SyncedDisk disk_;
    std::vector<std::shared_ptr<SimStore>> doors_;
    std::vector<std::shared_ptr<FaultStore>> faults_;
    std::vector<std::function<void()>> mends_;
    Weather weather_ = Weather::kStorm;
    std::string problem_;
    std::uint64_t moves_ = 0;
    std::uint64_t most_requests_ = 0;  // of one actor after the storm
    Scheduler scheduler_;              // last: its actors use all the rest
};

}  // namespace wisp::sim
