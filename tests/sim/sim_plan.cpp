#include "sim/sim_plan.hpp"

#include "log/run_keys.hpp"

namespace wisp::sim {
namespace {

constexpr std::int64_t kHourMs = 3'600'000;

FaultPlan make_faults(Random& random, double level) {
    FaultPlan faults;
    const auto some = [&](double most) {
        return random.chance(0.6) ? level * most * static_cast<double>(random.below(100)) / 100.0
                                  : 0.0;
    };
    faults.fail_before = some(0.15);
    faults.reply_lost = some(0.15);
    faults.throttle = some(0.10);
    faults.slow = some(0.10);
    faults.truncated_read = some(0.10);
    faults.flipped_bit = some(0.10);
    faults.oversized_read = some(0.05);
    faults.stale_list = some(0.30);
    faults.stale_operations = 1 + random.below(60);
    return faults;
}

/// Time leaps so far that orphans come of age, but nobody is about one write for half as long.
void add_long_days(SimPlan& plan, Random& random) {
    if (!plan.retention || !random.chance(0.4)) return;
    plan.orphan_age_ms = random.chance(0.5) ? 24 * kHourMs : 6 * kHourMs;
    plan.style.leap = 0.04;
    plan.style.longest_leap_ms = plan.orphan_age_ms;
}

void add_deletes(SimPlan& plan, Random& random) {
    // A hole matters most to a sweep below it.
    const bool sweeps = plan.style.longest_leap_ms > kHourMs;
    if (plan.single_writer || plan.stale || !random.chance(sweeps ? 0.4 : 0.1)) return;
    plan.deletes = true;
    plan.restores = random.chance(0.5);
}

/// From a seed of their own, so that the rest of a plan stays as it was.
void add_later_ideas(SimPlan& plan, std::uint64_t seed) {
    Random random(seed ^ 0x1A7E8);
    plan.power_cuts = random.chance(0.4);
    plan.full_disks = random.chance(0.2) ? 0.02 : 0.0;
    plan.sharded = !plan.single_writer && random.chance(0.2);
    add_long_days(plan, random);
    add_deletes(plan, random);
}

/// From a seed of their own too.
void add_keys(SimPlan& plan, std::uint64_t seed) {
    Random random(seed ^ 0x5161ED);
    plan.is_signed = !plan.single_writer && !plan.stale && random.chance(0.35);
    plan.attacker = plan.is_signed && random.chance(0.6);
    plan.destroys = plan.attacker && random.chance(0.2);
    if (plan.attacker) plan.deletes = false;
    // With clocks that are hours off, no certificate means anything to anybody.
    if (plan.is_signed && random.chance(0.75)) plan.style.clock_jump = 0;
}

/// And these.
void add_background(SimPlan& plan, std::uint64_t seed) {
    Random random(seed ^ 0xA57C);
    plan.asynchronous = !plan.single_writer && random.chance(0.25);
}

}  // namespace

SimPlan make_plan(std::uint64_t seed) {
    Random random(seed);
    SimPlan plan;
    plan.storm_steps = 150 + random.below(600);
    const double level = random.chance(0.15) ? 0.0 : (random.chance(0.6) ? 0.4 : 1.0);
    plan.faults = make_faults(random, level);
    plan.trainers = 1 + (random.chance(0.6) ? 1 : 0) + (random.chance(0.2) ? 1 : 0);
    plan.replicas = 1 + static_cast<unsigned>(random.below(3));
    plan.branch = random.chance(0.25);
    plan.compactor = random.chance(0.4);
    plan.retention = random.chance(0.5);
    plan.kills = random.chance(0.3) ? 0.0 : 0.7;
    plan.late_writes = random.chance(0.4) ? 0.03 : 0.0;
    plan.late_removes = random.chance(0.5);
    plan.retries = random.chance(0.4);
    plan.style.burst = random.chance(0.5) ? 0.3 : 0.9;
    plan.style.priorities = random.chance(0.3);
    plan.style.stall = random.chance(0.3) ? 0.0 : (random.chance(0.3) ? 0.02 : 0.004);
    plan.style.clock_jump = random.chance(0.3) ? 0.01 : 0.0;
    plan.style.leap = random.chance(0.3) ? 0.01 : 0.0;
    plan.rot = plan.faults.flipped_bit > 0 && random.chance(0.2);
    plan.stale = random.chance(0.06);
    if (plan.stale) plan.faults.stale_read = 0.05;
    if (random.chance(0.06)) {
        plan.single_writer = true;
        plan.faults.creation = Creation::kOverwrite;
        plan.trainers = 1;
        plan.late_writes = 0;
        plan.branch = plan.compactor = plan.retention = plan.stale = false;
        plan.faults.stale_read = 0;
    }
    add_later_ideas(plan, seed);
    add_keys(plan, seed);
    add_background(plan, seed);
    return plan;
}

Trouble KindFaults::decide(StoreOperation operation, const std::string& key) {
    Trouble trouble = faults_.decide(operation, key);
    const bool data =
        key.find("/anchors/") != std::string::npos || key.find("/deltas/") != std::string::npos;
    if (!data && !rot_) trouble.flipped = false;
    return trouble;
}

}  // namespace wisp::sim
