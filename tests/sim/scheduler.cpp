#include "sim/scheduler.hpp"

#include <algorithm>
#include <exception>

namespace wisp::sim {
namespace {

constexpr std::int64_t kSkewHourMs = 3'600'000;

}  // namespace

Scheduler::~Scheduler() {
    end_all();
}

Actor& Scheduler::add(std::string name, std::function<void(Actor&)> body,
                      std::int64_t starts_in_ms) {
    auto actor = std::make_unique<Actor>();
    Actor& added = *actor;
    added.name = std::move(name);
    added.number = actors_.size();
    added.wake_ms = now_ms_ + starts_in_ms;
    added.fiber = std::make_unique<Fiber>([this, &added, body = std::move(body)] {
        if (!ending_) body(added);
    });
    actors_.push_back(std::move(actor));
    priority_.push_back(random_.next());
    return added;
}

Actor* Scheduler::choose() {
    std::vector<Actor*> ready;
    Actor* soonest = nullptr;
    for (const auto& actor : actors_) {
        if (actor->fiber->done()) continue;
        const bool stalled = actor->stalled_until > steps_;
        if (!stalled && actor->wake_ms <= now_ms_) {
            ready.push_back(actor.get());
        } else if (soonest == nullptr ||
                   std::pair(stalled, actor->wake_ms) <
                       std::pair(soonest->stalled_until > steps_, soonest->wake_ms)) {
            soonest = actor.get();
        }
    }
    if (ready.empty()) {
        if (soonest == nullptr) return nullptr;
        now_ms_ = std::max(now_ms_, soonest->wake_ms);
        soonest->stalled_until = 0;
        return soonest;
    }
    const bool last_ready = std::ranges::find(ready, last_) != ready.end();
    if (last_ready && random_.chance(style_.burst)) return last_;
    if (style_.priorities && !random_.chance(0.05)) {
        if (random_.chance(0.01)) priority_[random_.below(priority_.size())] = random_.next();
        return *std::ranges::max_element(
            ready, {}, [&](const Actor* actor) { return priority_[actor->number]; });
    }
    return ready[random_.below(ready.size())];
}

void Scheduler::disturb(Actor& actor) {
    now_ms_ += static_cast<std::int64_t>(random_.below(4));
    if (calm_) return;
    if (random_.chance(style_.leap)) {
        const auto wanted = static_cast<std::int64_t>(
            random_.below(static_cast<std::uint64_t>(style_.longest_leap_ms)));
        now_ms_ += leap_room ? std::clamp<std::int64_t>(leap_room(), 0, wanted) : wanted;
    }
    if (random_.chance(style_.clock_jump)) {
        actor.skew_ms = static_cast<std::int64_t>(random_.below(4 * kSkewHourMs)) - 2 * kSkewHourMs;
    }
    if (random_.chance(style_.stall)) {
        actor.stalled_until = steps_ + (std::uint64_t{8} << random_.below(9));
    }
}

bool Scheduler::run(const std::function<bool()>& enough, std::uint64_t limit) {
    for (std::uint64_t taken = 0; !enough(); ++taken) {
        if (taken == limit) return false;
        Actor* actor = choose();
        if (actor == nullptr) return true;
        ++steps_;
        disturb(*actor);
        running_ = last_ = actor;
        actor->last_ran_ms = now_ms_;
        actor->fiber->resume();
        running_ = nullptr;
    }
    return true;
}

void Scheduler::end_all() {
    ending_ = true;
    for (const auto& actor : actors_) {
        actor->dead = true;
        running_ = actor.get();
        while (!actor->fiber->done()) actor->fiber->resume();
        running_ = nullptr;
    }
}

void Scheduler::hand_over(Actor& actor) {
    actor.fiber->suspend();
    if (actor.dead) throw Killed();
}

void Scheduler::sleep(Actor& actor, std::int64_t duration_ms) {
    if (actor.dead && std::uncaught_exceptions() > 0) return;
    if (actor.dead) throw Killed();
    actor.wake_ms = now_ms_ + std::max<std::int64_t>(duration_ms, 0);
    hand_over(actor);
}

void Scheduler::point(Actor& actor, bool may_throw) {
    if (!actor.dead && actor.kill_in > 0 && --actor.kill_in == 0 && !calm_) {
        actor.dead = true;
        if (on_kill) on_kill(actor);
    }
    if (actor.dead && may_throw && std::uncaught_exceptions() == 0) throw Killed();
}

void Scheduler::calm_down() {
    calm_ = true;
    for (const auto& actor : actors_) {
        actor->stalled_until = 0;
        actor->kill_in = 0;
    }
}

}  // namespace wisp::sim
