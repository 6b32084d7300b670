#include "follow/follow_progress.hpp"

#include <algorithm>
#include <utility>

#include "follow/replica_updater.hpp"

namespace wisp {
namespace {

FollowOptions on_terms_of(const Store& store, FollowOptions options) {
    const StoreTerms terms = store.terms();
    options.poll = std::max(options.poll, Milliseconds(terms.poll_ms));
    // Advice for people is worth two counted requests, a look for the run before it, in so long.
    if (terms.few_requests) options.heartbeat = std::max(options.heartbeat, Milliseconds(90'000));
    return options;
}

}  // namespace

FollowProgress::FollowProgress(const Store& store, const FollowOptions& given, ReplicaRecord record)
    : options(on_terms_of(store, given)),
      at(std::move(record)),
      pace_(given.run.seed == 0 ? fresh_seed() : given.run.seed) {}

void FollowProgress::know(const KnownHead& newest, bool steps) {
    if (newest.seq <= head.seq) return;
    if (steps && head.time_ms != 0 && newest.time_ms > head.time_ms) {
        pace_.note_step(newest.time_ms - head.time_ms);
    }
    head = newest;
}

bool FollowProgress::is_past_bound(std::uint64_t step) {
    const bool past = options.until_step && step > *options.until_step;
    bound_is_passed_ = bound_is_passed_ || past;
    return past;
}

Milliseconds FollowProgress::pause() {
    const std::int64_t now = options.run.clock->now_ms();
    return pace_.pause(options.poll, head.time_ms != 0 ? now - head.time_ms : -1);
}

std::uint64_t FollowProgress::lag() const {
    return head.state_index - std::min(head.state_index, at.state_index);
}

bool FollowProgress::expired() const {
    const std::int64_t now = options.run.clock->now_ms();
    const auto limit = options.max_staleness.count();
    return (head.expires_ms != 0 && now > head.expires_ms) ||
           (limit != 0 && head.time_ms != 0 && now - head.time_ms > limit);
}

FollowEvent FollowProgress::event(FollowEvent::Kind kind) const {
    FollowEvent told;
    told.kind = kind;
    told.seq = at.seq;
    told.epoch = at.epoch;
    told.step = at.step;
    told.state = at.state;
    told.unproven = at.unproven;
    told.head_seq = head.seq;
    told.lag_steps = lag();
    told.expired = expired();
    if (head.time_ms != 0) told.commit_age_ms = options.run.clock->now_ms() - head.time_ms;
    return told;
}

Result<void> FollowProgress::tell_moved(const Moved& moved) {
    FollowEvent told =
        event(moved.joined ? FollowEvent::Kind::kJoined : FollowEvent::Kind::kApplied);
    told.fetched_bytes = moved.fetched.bytes;
    told.fetched_objects = moved.fetched.objects;
    told.fetch_seconds = moved.fetched.fetch_seconds;
    told.verify_seconds = moved.fetched.verify_seconds;
    told.apply_seconds = moved.apply_seconds;
    told.deltas_applied = moved.deltas;
    told.changed_elements = moved.changed_elements;
    return tell(told);
}

Result<void> FollowProgress::tell_fault(const Error& error, bool distrusted) {
    FollowEvent told = event(FollowEvent::Kind::kFault);
    told.fault = error.text;
    told.fault_kind = error.kind;
    told.distrusted = distrusted;
    return tell(told);
}

Result<void> FollowProgress::tell_waiting() {
    return tell(event(FollowEvent::Kind::kWaiting));
}

Result<void> FollowProgress::tell(const FollowEvent& event) {
    if (!options.on_event) return {};
    auto told = options.on_event(event);
    if (told) return told;
    refusal_ = std::move(told).error();
    return fail(ErrorKind::kInternal, refusal_->text);
}

Result<FollowReport> FollowProgress::outcome(Result<FollowReport> report) {
    const auto refusal = std::exchange(refusal_, std::nullopt);
    if (refusal) return std::unexpected(*refusal);
    return report;
}

FollowReport FollowProgress::report(bool moved) const {
    FollowReport told;
    told.at = at;
    told.moved = moved;
    told.head_seq = head.seq;
    told.lag_steps = lag();
    told.reached_until = options.until_step && at.state_seq != 0 &&
                         (at.step >= *options.until_step || bound_is_passed_);
    told.expired = expired();
    return told;
}

}  // namespace wisp
