// Who goes on next: all actors of a simulation, one running at a time, chosen by the seed.
//
// An actor hands over at every store operation and every sleep, so that operations of all actors
// interleave in every order. Bursts, priorities and long stalls make the orders that matter likely.
// Time is virtual: it creeps with every step, leaps when everybody sleeps, and each actor's own
// clock may jump either way.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "sim/fiber.hpp"
#include "wisp/control.hpp"

namespace wisp::sim {

/// Unwinds an actor that was killed; nobody but its body catches it.
struct Killed {};

struct Actor {
    std::string name;
    std::size_t number = 0;
    std::filesystem::path folder;  // what survives its death; empty: nothing
    std::unique_ptr<Fiber> fiber;
    std::int64_t wake_ms = 0;
    std::int64_t last_ran_ms = 0;
    std::uint64_t stalled_until = 0;  // in steps
    std::int64_t skew_ms = 0;
    std::uint64_t kill_in = 0;       // points until it dies; 0: it lives on
    bool dead = false;               // goes on as a ghost without effects until it can be unwound
    bool writes = false;             // must have ended before the last word is written
    bool keeps_synced = false;       // its folder can lose what was not synced
    unsigned full_disk = 0;          // so many local calls find no room
    std::int64_t busy_since_ms = 0;  // since when it has been about one write; 0: it is not
};

struct ScheduleStyle {
    double burst = 0.5;       // goes on with the same actor
    double stall = 0.003;     // per step
    double clock_jump = 0.0;  // per step, of one actor's own clock
    double leap = 0.0;        // per step, of everybody's time
    std::int64_t longest_leap_ms = 3'600'000;
    bool priorities = false;  // the same few actors first, until that changes
};

class Scheduler {
  public:
    Scheduler(std::uint64_t seed, const ScheduleStyle& style) : random_(seed), style_(style) {}
    ~Scheduler();

    Actor& add(std::string name, std::function<void(Actor&)> body, std::int64_t starts_in_ms);

    /// From outside: runs until `enough`, or everybody has ended, or `limit` steps were taken (then
    /// false).
    bool run(const std::function<bool()>& enough, std::uint64_t limit);
    /// Kills and unwinds everybody.
    void end_all();

    /// From an actor: lets others go on.
    void hand_over(Actor& actor);
    void sleep(Actor& actor, std::int64_t duration_ms);
    /// A place where a process can be killed. Throws where the caller lets it.
    void point(Actor& actor, bool may_throw);

    /// No more stalls and jumps; those that are stalled wake up.
    void calm_down();
    bool ending() const { return ending_; }
    Actor* running() const { return running_; }
    std::int64_t now_ms() const { return now_ms_; }
    std::uint64_t steps() const { return steps_; }
    const std::vector<std::unique_ptr<Actor>>& actors() const { return actors_; }
    /// Told when an actor dies, at that very moment.
    std::function<void(Actor&)> on_kill;
    /// How far time may leap now; absent: as far as the style says.
    std::function<std::int64_t()> leap_room;

  private:
    Actor* choose();
    void disturb(Actor& actor);

    Random random_;
    ScheduleStyle style_;
    std::vector<std::unique_ptr<Actor>> actors_;
    std::vector<std::uint64_t> priority_;
    Actor* running_ = nullptr;
    Actor* last_ = nullptr;
    std::int64_t now_ms_ = 1'800'000'000'000;
    std::uint64_t steps_ = 0;
    bool calm_ = false;
    bool ending_ = false;
};

/// Time as one actor sees it.
class VirtualClock : public Clock {
  public:
    VirtualClock(Scheduler& scheduler, Actor& actor) : scheduler_(scheduler), actor_(actor) {}
    std::int64_t now_ms() override { return scheduler_.now_ms() + actor_.skew_ms; }
    void sleep_for(Milliseconds duration) override { scheduler_.sleep(actor_, duration.count()); }

  private:
    Scheduler& scheduler_;
    Actor& actor_;
};

/// Time as the store sees it: it never goes back.
class StoreClock : public Clock {
  public:
    explicit StoreClock(const Scheduler& scheduler) : scheduler_(scheduler) {}
    std::int64_t now_ms() override { return scheduler_.now_ms(); }
    void sleep_for(Milliseconds) override {}

  private:
    const Scheduler& scheduler_;
};

}  // namespace wisp::sim
