#include "wisp/follower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/random.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "corridor/follow_terms.hpp"
#include "corridor/journey.hpp"
#include "fetch/state_search.hpp"
#include "format/heartbeat.hpp"
#include "format/run_keys.hpp"
#include "wisp/stop.hpp"

namespace wisp {
namespace {

constexpr std::size_t kRememberedIntervals = 8;
constexpr std::size_t kTrustedIntervals = 3;
constexpr Milliseconds kLongestWait(60'000);
constexpr Milliseconds kLongestAsked(300'000);  // by a store that counts requests
constexpr int kOvertaken = 8;

}  // namespace

struct Follower::State {
    State(CommitLog opened, Replica& held, const FollowOptions& given)
        : log(std::move(opened)),
          replica(held),
          options(given),
          journey(log, replica, at, journey_options()),
          random(given.run.seed == 0 ? fresh_seed() : given.run.seed) {}

    JourneyOptions journey_options() {
        JourneyOptions wanted;
        wanted.threads = options.threads;
        wanted.parallel_fetches = options.parallel_fetches;
        wanted.base = options.base;
        wanted.on_moved = [this](const Moved& moved) { return tell(moved); };
        wanted.on_fault = [this](const Error& error) { tell_fault(error); };
        return wanted;
    }

    CommitLog log;
    Replica& replica;
    FollowOptions options;
    ReplicaRecord at;
    Journey journey;
    Random random;
    bool checked_past = false;
    bool beyond_is_there = false;  // the run has gone past until_step
    std::uint64_t head_seq = 0;
    std::uint64_t head_count = 0;
    std::int64_t head_time_ms = 0;
    std::int64_t head_expires_ms = 0;
    std::int64_t last_heartbeat_ms = 0;
    std::optional<std::int64_t> last_pause_us;
    std::deque<std::int64_t> intervals_ms;

    void know(const LogEntry& entry) {
        const Commit& commit = entry.commit;
        if (commit.seq <= head_seq) return;
        if (commit.makes_state() && head_time_ms != 0 && commit.time_ms > head_time_ms) {
            intervals_ms.push_back(commit.time_ms - head_time_ms);
            if (intervals_ms.size() > kRememberedIntervals) intervals_ms.pop_front();
        }
        head_seq = commit.seq;
        head_count = commit.state.count;
        head_time_ms = commit.time_ms;
        head_expires_ms = commit.expires_ms;
    }

    std::uint64_t lag() const { return head_count > at.count ? head_count - at.count : 0; }

    FollowEvent event(FollowEvent::Kind kind) const {
        FollowEvent told;
        told.kind = kind;
        told.seq = at.seq;
        told.epoch = at.epoch;
        told.step = at.step;
        told.state = at.state;
        told.head_seq = head_seq;
        told.lag_steps = lag();
        told.expired = expired();
        if (head_time_ms != 0) told.commit_age_ms = options.run.clock->now_ms() - head_time_ms;
        return told;
    }

    bool expired() const {
        const std::int64_t now = options.run.clock->now_ms();
        const auto limit = options.max_staleness.count();
        return (head_expires_ms != 0 && now > head_expires_ms) ||
               (limit != 0 && head_time_ms != 0 && now - head_time_ms > limit);
    }

    Result<void> tell(const Moved& moved) {
        last_pause_us = static_cast<std::int64_t>(moved.apply_seconds * 1e6);
        FollowEvent told =
            event(moved.joined ? FollowEvent::Kind::kJoined : FollowEvent::Kind::kApplied);
        told.fetched_bytes = moved.fetched.bytes;
        told.fetched_objects = moved.fetched.objects;
        told.fetch_seconds = moved.fetched.fetch_seconds;
        told.verify_seconds = moved.fetched.verify_seconds;
        told.apply_seconds = moved.apply_seconds;
        told.deltas_applied = moved.deltas;
        told.changed_elements = moved.changed_elements;
        return options.on_event ? options.on_event(told) : Result<void>{};
    }

    void tell_fault(const Error& error) {
        FollowEvent told = event(FollowEvent::Kind::kFault);
        told.fault = error.text;
        told.fault_kind = error.kind;
        if (options.on_event) (void)options.on_event(told);
    }

    /// Once per process: what this replica has seen must still be in the bucket.
    Result<void> check_past() {
        if (checked_past || at.seq == 0) return {};
        WISP_ASSIGN(const Slot own, log.read(at.seq, Judged::kThen));
        const bool other =
            own.entry && !at.commit_hash.empty() && own.entry->hash != at.commit_hash;
        if (options.accept_rewind && (other || own.kind == Slot::Kind::kAbsent)) {
            // What was seen counts no more; the weights are kept until another state is there.
            at.seq = at.epoch = 0;
            at.commit_hash.clear();
            forget_state(at);
        } else if (own.kind == Slot::Kind::kAbsent) {
            return fail(ErrorKind::kForked,
                        fmt::format("{} has seen commit {}, but {} does not have it any more: the "
                                    "bucket was set back; restore it, or pass --accept-rewind",
                                    shown(replica.label()), at.seq, shown(log.where().url)));
        }
        if (other && at.seq != 0) {
            return fail(ErrorKind::kForked,
                        fmt::format("commit {} of {} is not the one that {} has seen: there are "
                                    "two histories; stop and look, or pass --accept-rewind",
                                    at.seq, shown(log.where().url), shown(replica.label())));
        }
        // A replica that starts up to date must also notice when the run falls silent.
        if (own.entry) know(*own.entry);
        checked_past = true;
        return {};
    }

    Result<void> check_follows(const LogEntry& next) const {
        if (next.commit.epoch < at.epoch) {
            return fail(
                ErrorKind::kForked,
                fmt::format("commit {} of {} is of epoch {}, but epoch {} was there "
                            "before: the log was rewritten; stop and look",
                            next.commit.seq, shown(log.where().url), next.commit.epoch, at.epoch));
        }
        if (at.commit_hash.empty() || next.commit.previous == at.commit_hash) return {};
        return fail(ErrorKind::kForked,
                    fmt::format("commit {} of {} does not follow the commit this replica has seen: "
                                "there are two histories; stop and look",
                                next.commit.seq, shown(log.where().url)));
    }

    bool beyond(const StateName& state) const {
        return options.until_step && state.step > *options.until_step;
    }

    /// To the head, or as far as asked. Where retention takes the way away under one's feet, there
    /// is a newer head, and a way to it.
    Result<bool> leap() {
        for (int overtaken = 0;; ++overtaken) {
            auto moved = leap_once();
            if (moved || overtaken == kOvertaken) return moved;
            const ErrorKind kind = moved.error().kind;
            if (kind != ErrorKind::kGap && kind != ErrorKind::kCorrupt) return moved;
            WISP_ASSIGN(const auto head, log.head(head_seq));
            if (!head || head->commit.seq <= head_seq) return moved;
            tell_fault(moved.error());
        }
    }

    Result<bool> leap_once() {
        const std::uint64_t known = options.accept_rewind ? 0 : at.seq;
        WISP_ASSIGN(const auto head, log.head(known));
        if (!head || head->commit.state.seq == 0) return false;
        if (!options.accept_rewind &&
            (head->commit.seq < at.seq || head->commit.epoch < at.epoch)) {
            return fail(ErrorKind::kForked,
                        fmt::format("{} ends at commit {} of epoch {}, behind commit {} of epoch "
                                    "{} that this replica has seen: it was set back; restore it, "
                                    "or pass --accept-rewind",
                                    shown(log.where().url), head->commit.seq, head->commit.epoch,
                                    at.seq, at.epoch));
        }
        know(*head);
        StateName target = head->commit.state;
        if (beyond(target)) {
            beyond_is_there = true;
            WISP_ASSIGN(const RoadMap map, log.map_of(*head));
            WISP_ASSIGN(target, find_state(log, *head, map, *options.until_step));
            if (at.state_seq != 0 && target.seq <= at.state_seq) return false;
        }
        const bool moves = at.state_seq != target.seq;
        const auto went = journey.go(*head, target);
        if (went) {
            checked_past = true;
            return moves;
        }
        if (went.error().kind != ErrorKind::kGap) return std::unexpected(went.error());
        // Whoever plans and then sleeps through a retention finds its road gone; there is another
        // one in the newer commit that gave this one up.
        WISP_ASSIGN(const auto newer, log.head(head->commit.seq));
        if (!newer || newer->commit.floor <= head->commit.floor) {
            return std::unexpected(went.error());
        }
        return leap();
    }

    void beat(std::string_view state, bool now) {
        if (options.replica_id.empty()) return;
        const std::int64_t time = options.run.clock->now_ms();
        if (!now && time - last_heartbeat_ms < options.heartbeat.count()) return;
        last_heartbeat_ms = time;
        const std::string text =
            write_heartbeat({log.run(), at.seq, at.step, at.count, std::string(state),
                             last_pause_us, options.heartbeat.count()});
        // Advice only: a replica that may not write follows all the same.
        (void)log.where().store->put(
            log.where().key(std::string(kReplicasPrefix) + options.replica_id), as_bytes(text));
    }

    FollowReport report(bool moved) const {
        FollowReport told;
        told.at = at;
        told.moved = moved;
        told.head_seq = head_seq;
        told.lag_steps = lag();
        told.reached_until = options.until_step && at.state_seq != 0 &&
                             (at.step >= *options.until_step || beyond_is_there);
        told.expired = expired();
        return told;
    }

    /// Whether a commit is so young that another one behind it would be a surprise.
    bool is_young(const Commit& commit) const {
        const std::int64_t age = options.run.clock->now_ms() - commit.time_ms;
        return age >= 0 && age < std::max<std::int64_t>(options.poll.count(), 100);
    }

    /// After a change that failed half-way, the replica itself tells where it stands.
    Result<void> look_again() {
        if (!replica.in_doubt()) return {};
        WISP_ASSIGN(const auto record, replica.load());
        at = record.value_or(ReplicaRecord{});
        at.run = log.run();
        return {};
    }

    Result<FollowReport> catch_up(bool probe) {
        WISP_TRY(look_again());
        WISP_TRY(check_past());
        bool moved = false;
        for (int taken = 0;; ++taken) {
            if (stop_requested()) return report(moved);
            // One step behind is the common case and costs two requests; more is worth a plan.
            if (at.state_seq == 0 || taken == 2) {
                WISP_ASSIGN(const bool leapt, leap());
                return report(moved || leapt);
            }
            WISP_ASSIGN(const Slot slot, log.read(at.seq + 1));
            if (slot.kind == Slot::Kind::kAbsent) return report(moved);
            if (slot.kind == Slot::Kind::kBuried) {
                WISP_ASSIGN(const bool leapt, leap());
                return report(moved || leapt);
            }
            WISP_TRY(check_follows(*slot.entry));
            know(*slot.entry);
            if (slot.entry->commit.makes_state() && beyond(slot.entry->commit.state)) {
                beyond_is_there = true;
                return report(moved);
            }
            auto step = journey.take(*slot.entry);
            if (step) {
                if (!slot.entry->commit.makes_state()) continue;
                moved = true;
                if (!probe && is_young(slot.entry->commit)) return report(moved);
                continue;
            }
            const ErrorKind kind = step.error().kind;
            if (kind != ErrorKind::kGap && kind != ErrorKind::kCorrupt &&
                kind != ErrorKind::kWrongBase) {
                return std::unexpected(std::move(step).error());
            }
            tell_fault(step.error());
            WISP_ASSIGN(const bool leapt, leap());
            return report(moved || leapt);
        }
    }

    Result<FollowReport> move_and_beat(bool probe) {
        auto moved = catch_up(probe);
        beat("following", moved && moved->moved && last_heartbeat_ms == 0);
        return moved;
    }

    Milliseconds pause() {
        std::int64_t wait = options.poll.count();
        // No need to ask before most of the shortest step seen lately has gone by. The first steps
        // say little: a run often waits for its servers before them, and then hurries.
        if (intervals_ms.size() >= kTrustedIntervals && head_time_ms != 0) {
            const std::int64_t shortest = *std::ranges::min_element(intervals_ms);
            const std::int64_t since = options.run.clock->now_ms() - head_time_ms;
            if (since >= 0) wait = std::max(wait, shortest - shortest / 5 - since);
        }
        wait = std::min<std::int64_t>(wait, kLongestWait.count());
        // Replicas started together must not ask together for ever.
        const std::int64_t tenth = wait / 10;
        return Milliseconds(
            wait - tenth +
            static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * tenth + 1))));
    }
};

Follower::Follower(std::unique_ptr<State> state) : state_(std::move(state)) {}
Follower::Follower(Follower&&) noexcept = default;
Follower& Follower::operator=(Follower&&) noexcept = default;
Follower::~Follower() {
    if (state_) state_->beat("stopped", true);
}

Result<Follower> Follower::open(const Location& run, Replica& replica,
                                const FollowOptions& options) {
    WISP_ASSIGN(const auto record, replica.load());
    FollowOptions used = on_terms_of(*run.store, options);
    if (record) {
        TrustPolicy& trust = used.run.trust;
        trust.min_serial = std::max(trust.min_serial, record->certificate_serial);
    }
    WISP_ASSIGN(CommitLog log, CommitLog::open(run, used.run));
    if (record && record->run != log.run()) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} follows run {}, but {} is run {}; use another folder for it",
                                shown(replica.label()), record->run, shown(run.url), log.run()));
    }
    auto state = std::make_unique<State>(std::move(log), replica, used);
    if (record) state->at = *record;
    state->at.run = state->log.run();
    return Follower(std::move(state));
}

Result<FollowReport> Follower::catch_up() {
    return state_->move_and_beat(true);
}

Result<FollowReport> Follower::take_next() {
    return state_->move_and_beat(false);
}

Result<FollowReport> Follower::follow() {
    Clock& clock = *state_->options.run.clock;
    for (int failures = 0;;) {
        auto report = take_next();
        if (!report) {
            if (report.error().kind != ErrorKind::kUnavailable || stop_requested()) return report;
            // The store will come back; until then the last good state is served.
            state_->tell_fault(report.error());
            failures = std::min(failures + 1, 6);
            const Milliseconds grown = state_->pause() * (std::int64_t{1} << failures);
            const Milliseconds asked(report.error().retry_after_ms.value_or(0));
            clock.sleep_for(
                std::max(std::min(grown, kLongestWait), std::min(asked, kLongestAsked)));
            continue;
        }
        failures = 0;
        if (report->reached_until || stop_requested()) return report;
        if (report->moved && report->lag_steps > 0) continue;
        // After a move there may be more: whoever waits for the newest must not take it for that.
        if (state_->options.on_event && !report->moved) {
            WISP_TRY(state_->options.on_event(state_->event(FollowEvent::Kind::kWaiting)));
        }
        clock.sleep_for(state_->pause());
        if (stop_requested()) return report;
    }
}

const ReplicaRecord& Follower::at() const {
    return state_->at;
}

}  // namespace wisp
