// What one seed is about: who takes part, and how bad the store and the clocks are.
#pragma once

#include <cstdint>

#include "doubles/fault_plan.hpp"
#include "sim/scheduler.hpp"

namespace wisp::sim {

struct SimPlan {
    std::uint64_t storm_steps = 600;
    unsigned trainers = 2;
    unsigned replicas = 3;
    bool sharded = false;       // one more trainer, over several ranks
    bool asynchronous = false;  // one more trainer, which publishes in the background
    bool branch = false;
    bool compactor = false;
    bool retention = false;
    double kills = 0;  // chance that a life is cut short
    double late_writes = 0;
    bool late_removes = false;
    bool single_writer = false;  // the store overwrites what it should only create
    bool stale = false;          // the store breaks its word and answers from the past
    bool rot = false;            // even small records may come with a bit flipped
    bool retries = false;        // as open_location() does it
    std::int64_t orphan_age_ms = 24 * 3'600'000;
    bool power_cuts = false;  // of those that are killed, some lose what was not synced
    double full_disks = 0;    // per local call: there is no room any more
    bool is_signed = false;   // from birth, by certificates that end and are renewed
    bool attacker = false;    // writes without a key that is trusted
    bool destroys = false;    // and over commits that are still needed
    bool deletes = false;     // somebody removes a commit from the middle of the log
    bool restores = false;    // and puts it back before the calm
    FaultPlan faults;
    ScheduleStyle style;
};

SimPlan make_plan(std::uint64_t seed);

/// Faults as planned, but only such as a store may show: what is kept under its own hash may come
/// damaged, small records come whole or not at all.
class KindFaults : public FaultPolicy {
  public:
    KindFaults(const FaultPlan& plan, bool rot, std::uint64_t seed)
        : faults_(plan, seed), rot_(rot) {}
    Trouble decide(StoreOperation operation, const std::string& key) override;

  private:
    SeededFaults faults_;
    bool rot_;
};

}  // namespace wisp::sim
