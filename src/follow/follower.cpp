#include "wisp/follower.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/event_listener.hpp"
#include "follow/follow_pace.hpp"
#include "follow/follow_terms.hpp"
#include "follow/history_check.hpp"
#include "follow/replica_updater.hpp"
#include "log/heartbeat.hpp"
#include "log/run_keys.hpp"
#include "log/state_search.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

constexpr Milliseconds kLongestAsked(300'000);  // by a store that counts requests
constexpr int kOvertaken = 8;
constexpr std::uint64_t kQuietLooks = 8;  // of these, one also asks the hint
constexpr Milliseconds kFarewell(500);

}  // namespace

struct Follower::State {
    State(CommitLog opened, Replica& held, const FollowOptions& given)
        : log(std::move(opened)),
          replica(held),
          options(given),
          updater(log, replica, at, updater_options()),
          pace(given.run.seed == 0 ? fresh_seed() : given.run.seed) {
        log.on_void([this](std::uint64_t seq, const Error& why) {
            // Once each: it stays there for ever.
            if (seq <= highest_void) return;
            highest_void = seq;
            if (auto told = tell_fault(why); !told) refusal = std::move(told).error();
        });
    }

    ReplicaUpdaterOptions updater_options() {
        ReplicaUpdaterOptions wanted;
        wanted.threads = options.threads;
        wanted.parallel_fetches = options.parallel_fetches;
        wanted.base = options.base;
        wanted.on_moved = [this](const Moved& moved) { return tell(moved); };
        wanted.on_fault = [this](const Error& error) { return tell_fault(error); };
        return wanted;
    }

    CommitLog log;
    Replica& replica;
    FollowOptions options;
    EventListener events{options.on_event};
    ReplicaRecord at;
    ReplicaUpdater updater;
    FollowPace pace;
    bool checked_past = false;
    bool beyond_is_there = false;    // the run has gone past until_step
    std::uint64_t marked_state = 0;  // the state of the commit that the record's mark is at
    std::uint64_t highest_void = 0;  // of the slots that were stepped over and told of
    std::optional<Error> refusal;    // a callback's, where nobody could return it
    std::uint64_t quiet_looks = 0;   // in a row that found the next slot empty
    std::uint64_t head_seq = 0;
    std::uint64_t head_index = 0;
    std::int64_t head_time_ms = 0;
    std::int64_t head_expires_ms = 0;  // by its own word, or its certificate's
    std::int64_t last_heartbeat_ms = 0;
    std::optional<std::int64_t> last_pause_us;

    void know(const LogEntry& entry) {
        const Commit& commit = entry.commit;
        if (commit.seq <= head_seq) return;
        if (commit.makes_state() && head_time_ms != 0 && commit.time_ms > head_time_ms) {
            pace.note_step(commit.time_ms - head_time_ms);
        }
        head_seq = commit.seq;
        head_index = commit.state.state_index;
        head_time_ms = commit.time_ms;
        head_expires_ms = commit.expires_ms;
        const std::int64_t ends = entry.signer.ends_ms;
        if (ends != 0 && (head_expires_ms == 0 || ends < head_expires_ms)) head_expires_ms = ends;
    }

    void stand_past(const LogEntry& entry) {
        marked_state = entry.commit.state.seq;
        log.require_serial(at.certificate_serial);
    }

    std::uint64_t lag() const { return head_index - std::min(head_index, at.state_index); }

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
        return events.tell(told);
    }

    Result<void> tell_fault(const Error& error) {
        FollowEvent told = event(FollowEvent::Kind::kFault);
        told.fault = error.text;
        told.fault_kind = error.kind;
        return events.tell(told);
    }

    /// Once per process: what this replica has seen must still be in the bucket.
    Result<void> check_past() {
        if (checked_past || at.seq == 0) return {};
        WISP_ASSIGN(const auto own, past().find_mark());
        if (own) {
            marked_state = own->commit.state.seq;
            // A replica that starts up to date must also notice when the run falls silent.
            know(*own);
        } else if (options.accept_rewind) {
            // What was seen counts no more; the weights are kept until another state is there.
            at.seq = at.epoch = 0;
            at.commit_hash.clear();
            forget_state(at);
        }
        checked_past = true;
        return {};
    }

    HistoryCheck past() const { return {log, at, replica.label(), options.accept_rewind}; }

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
            WISP_TRY(tell_fault(moved.error()));
        }
    }

    Result<bool> leap_once() {
        const std::uint64_t known = options.accept_rewind ? 0 : at.seq;
        const auto found = log.head(known);
        if (at.state_seq != 0 && past().is_no_newer(found)) {
            WISP_ASSIGN(const bool current, past().still_has_mark());
            if (current && !found) WISP_TRY(tell_fault(found.error()));
            if (current) return false;
        }
        if (!found) return std::unexpected(found.error());
        const auto& head = *found;
        if (!head || head->commit.state.seq == 0) return false;
        Lineage history(log, *head);
        WISP_TRY(past().check_descent(history));
        know(*head);
        StateName target = head->commit.state;
        if (beyond(target)) {
            beyond_is_there = true;
            WISP_ASSIGN(target, find_state(history, *options.until_step));
            if (at.state_seq != 0 && target.seq <= at.state_seq) return false;
        }
        const bool moves = at.state_seq != target.seq;
        const auto went = updater.go(history, target);
        if (went) {
            checked_past = true;
            // Bounded, it stands below the head, and knows it.
            stand_past(*head);
            return moves;
        }
        if (went.error().kind != ErrorKind::kGap) return std::unexpected(went.error());
        // Whoever plans and then sleeps through a retention finds its merged delta gone; there is
        // another one in the newer commit that gave this one up.
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
            write_heartbeat({log.run(), at.seq, at.step, at.state_index, std::string(state),
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
        // What the record stands at is looked up again with it.
        checked_past = false;
        marked_state = 0;
        return {};
    }

    Result<FollowReport> leap_from(bool moved) {
        WISP_ASSIGN(const bool leapt, leap());
        return report(moved || leapt);
    }

    /// Nothing in the next slot that counts by itself: a commit that has lapsed since, a tombstone,
    /// or nothing. The head tells what it is worth.
    Result<FollowReport> look_beyond(Slot::Kind next, bool probe, bool moved) {
        if (next == Slot::Kind::kAbsent) {
            const bool look = probe || ++quiet_looks % kQuietLooks == 0;
            WISP_ASSIGN(const bool lost, look ? past().skips_a_commit() : Result<bool>(false));
            if (!lost) return report(moved);
        }
        return leap_from(moved);
    }

    Result<FollowReport> catch_up(bool probe) {
        WISP_TRY(look_again());
        WISP_TRY(check_past());
        bool moved = false;
        for (int taken = 0;; ++taken) {
            if (stopped()) return report(moved);
            // One step behind is the common case and costs two requests; more is worth a plan.
            // Below its mark it stands when a bound kept it there.
            if (at.state_seq == 0 || taken == 2 || marked_state > at.state_seq) {
                return leap_from(moved);
            }
            WISP_ASSIGN(const Slot slot, log.next(at.seq));
            if (slot.kind != Slot::Kind::kCommit) return look_beyond(slot.kind, probe, moved);
            quiet_looks = 0;
            const LogEntry& next = *slot.entry;
            auto step = past().check_follows(next);
            if (step) {
                know(next);
                if (next.commit.makes_state() && beyond(next.commit.state)) {
                    beyond_is_there = true;
                    return report(moved);
                }
                step = updater.take(next);
            }
            if (step) {
                stand_past(next);
                if (!next.commit.makes_state()) continue;
                moved = true;
                if (!probe && is_young(next.commit)) return report(moved);
                continue;
            }
            const ErrorKind kind = step.error().kind;
            if (kind != ErrorKind::kGap && kind != ErrorKind::kCorrupt &&
                kind != ErrorKind::kWrongBase) {
                return std::unexpected(std::move(step).error());
            }
            WISP_TRY(tell_fault(step.error()));
            return leap_from(moved);
        }
    }

    Result<FollowReport> move_and_beat(bool probe) {
        auto moved = catch_up(probe);
        if (refusal) return std::unexpected(*std::exchange(refusal, std::nullopt));
        beat("following", moved && moved->moved && last_heartbeat_ms == 0);
        return moved;
    }

    Milliseconds pause() {
        const std::int64_t now = options.run.clock->now_ms();
        return pace.pause(options.poll, head_time_ms != 0 ? now - head_time_ms : -1);
    }
};

Follower::Follower(std::unique_ptr<State> state) : state_(std::move(state)) {}
Follower::Follower(Follower&&) noexcept = default;
Follower& Follower::operator=(Follower&&) noexcept = default;
Follower::~Follower() {
    if (!state_) return;
    // Advice is worth a moment of whoever wants to be gone, and no more.
    std::optional<StopScope> scope;
    if (stopped()) scope.emplace(kFarewell);
    state_->beat("stopped", true);
}

Result<Follower> Follower::open(const Location& run, Replica& replica,
                                const FollowOptions& options) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(const auto record, replica.load());
    FollowOptions used = on_terms_of(*run.store, options);
    WISP_ASSIGN(CommitLog log, CommitLog::open(run, used.run));
    if (record) log.require_serial(record->certificate_serial);
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
    const StopScope scope(state_->options.run.stop);
    return state_->events.outcome(state_->move_and_beat(true));
}

Result<FollowReport> Follower::take_next() {
    const StopScope scope(state_->options.run.stop);
    return state_->events.outcome(state_->move_and_beat(false));
}

Result<FollowReport> Follower::follow() {
    const StopScope scope(state_->options.run.stop);
    Clock& clock = *state_->options.run.clock;
    for (int failures = 0;;) {
        auto report = state_->move_and_beat(false);
        if (!report) {
            const bool heals = report.error().kind == ErrorKind::kUnavailable;
            if (heals && stopped()) return state_->report(false);
            // The store will come back; until then the last good state is served.
            if (!heals || !state_->tell_fault(report.error())) {
                return state_->events.outcome(std::move(report));
            }
            failures = std::min(failures + 1, 6);
            const Milliseconds grown = state_->pause() * (std::int64_t{1} << failures);
            const Milliseconds asked(report.error().retry_after_ms.value_or(0));
            clock.sleep_for(std::max(std::min(grown, FollowPace::kLongestWait),
                                     std::min(asked, kLongestAsked)));
            continue;
        }
        failures = 0;
        if (report->reached_until || stopped()) return report;
        if (report->moved && report->lag_steps > 0) continue;
        // After a move there may be more: whoever waits for the newest must not take it for that.
        if (!report->moved && !state_->events.tell(state_->event(FollowEvent::Kind::kWaiting))) {
            return state_->events.outcome(std::move(report));
        }
        clock.sleep_for(state_->pause());
        if (stopped()) return report;
    }
}

const ReplicaRecord& Follower::at() const {
    return state_->at;
}

}  // namespace wisp
