#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/file.hpp"
#include "base/random.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/shard_index.hpp"
#include "delta/deliver_changes.hpp"
#include "follow/event_listener.hpp"
#include "follow/follow_terms.hpp"
#include "trl/trl_replay.hpp"
#include "wisp/control.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr Milliseconds kLongestWait(60'000);

/// Another start may do where this one did not.
bool is_about_content(ErrorKind kind) {
    return kind == ErrorKind::kCorrupt || kind == ErrorKind::kGap ||
           kind == ErrorKind::kWrongBase || kind == ErrorKind::kInvalid ||
           kind == ErrorKind::kUnsupported;
}

}  // namespace

struct TrlFollower::State {
    State(const Location& where, Replica& held, const FollowOptions& given)
        : replica(held),
          options(given),
          bucket(where, held.scratch() / "fetched", given.parallel_fetches),
          run(trl_run_id(where)),
          random(given.run.seed == 0 ? fresh_seed() : given.run.seed) {}

    Replica& replica;
    FollowOptions options;
    EventListener events{options.on_event};
    TrlBucket bucket;
    std::string run;
    Random random;
    ReplicaRecord at;
    bool checked_past = false;
    bool beyond_is_there = false;  // the bucket has gone past until_step
    std::uint64_t head_seq = 0;
    std::int64_t head_time_ms = 0;
    std::uint64_t lag = 0;

    bool has_state() const { return at.state_seq != 0 && replica.weights() != nullptr; }

    bool expired() const {
        const auto limit = options.max_staleness.count();
        return limit != 0 && head_time_ms != 0 &&
               options.run.clock->now_ms() - head_time_ms > limit;
    }

    FollowEvent event(FollowEvent::Kind kind) const {
        FollowEvent told;
        told.kind = kind;
        told.seq = at.seq;
        told.step = at.step;
        told.state = at.state;
        told.head_seq = head_seq;
        told.lag_steps = lag;
        told.unproven = at.state_seq != 0 && at.epoch == 0;
        told.expired = expired();
        if (head_time_ms != 0) told.commit_age_ms = options.run.clock->now_ms() - head_time_ms;
        return told;
    }

    Result<void> tell_moved(FollowEvent::Kind kind, const TrlReached& reached, double seconds) {
        FollowEvent told = event(kind);
        const FetchCounts fetched = bucket.take_counts();
        told.fetched_bytes = fetched.bytes;
        told.fetched_objects = fetched.objects;
        told.fetch_seconds = fetched.fetch_seconds;
        told.apply_seconds = std::max(0.0, seconds - fetched.fetch_seconds);
        told.deltas_applied = reached.deltas;
        told.changed_elements = reached.changed_elements;
        return events.tell(told);
    }

    Result<void> tell_fault(const Error& error) {
        FollowEvent told = event(FollowEvent::Kind::kFault);
        told.fault = error.text;
        told.fault_kind = error.kind;
        return events.tell(told);
    }

    FollowReport report(bool moved) const {
        FollowReport told;
        told.at = at;
        told.moved = moved;
        told.head_seq = head_seq;
        told.lag_steps = lag;
        told.unproven = at.state_seq != 0 && at.epoch == 0;
        told.reached_until = options.until_step && at.state_seq != 0 &&
                             (at.step >= *options.until_step || beyond_is_there);
        told.expired = expired();
        return told;
    }

    /// What lies behind `after`, as far as it is wanted.
    Result<std::vector<TrlObject>> list(TrlObject::Kind kind, std::optional<std::uint64_t> after) {
        WISP_ASSIGN(auto objects, bucket.list(kind, after));
        for (const TrlObject& object : objects) {
            if (object.step + 1 < head_seq) continue;
            head_seq = object.step + 1;
            head_time_ms = object.info.modified_ms;
        }
        const auto last = std::ranges::find_if(objects, [&](const TrlObject& object) {
            return options.until_step && object.step > *options.until_step;
        });
        if (last != objects.end()) beyond_is_there = true;
        objects.erase(last, objects.end());
        return objects;
    }

    Result<std::vector<TrlObject>> moves_after(std::optional<std::uint64_t> step) {
        WISP_ASSIGN(const auto deltas, list(TrlObject::Kind::kDelta, step));
        // TRL writes an anchor in place of a delta, so that deltas alone do not tell all.
        WISP_ASSIGN(const auto anchors, list(TrlObject::Kind::kAnchor, step));
        return moves_of(deltas, anchors);
    }

    /// Once per process: a bucket without what this replica has seen is another history.
    Result<void> check_past() {
        if (checked_past || !has_state()) return {};
        const auto before = at.step == 0 ? std::nullopt : std::optional(at.step - 1);
        WISP_ASSIGN(const auto deltas, list(TrlObject::Kind::kDelta, before));
        WISP_ASSIGN(const auto anchors, list(TrlObject::Kind::kAnchor, before));
        checked_past = true;
        if (!deltas.empty() || !anchors.empty() || beyond_is_there) return {};
        if (!options.accept_rewind) {
            return fail(ErrorKind::kForked,
                        fmt::format("{} is at step {}, but {} ends before it: the bucket was set "
                                    "back or is another one; stop and look, or pass "
                                    "--accept-rewind",
                                    shown(replica.label()), at.step, shown(bucket.where().url)));
        }
        WISP_TRY(replica.discard());
        forget_state(at);
        head_seq = 0;
        return {};
    }

    Result<FollowReport> catch_up() {
        WISP_TRY(check_past());
        if (!has_state()) {
            WISP_ASSIGN(const bool joined, join(std::nullopt));
            return report(joined);
        }
        WISP_ASSIGN(const auto moves, moves_after(at.step));
        bool moved = false;
        for (std::size_t i = 0; i < moves.size() && !stopped(); ++i) {
            lag = moves.size() - i - 1;
            auto taken = take(moves[i]);
            bucket.clear();
            if (taken) {
                moved = true;
                continue;
            }
            lag = moves.size() - i;
            const Error error = std::move(taken).error();
            if (!is_about_content(error.kind)) return std::unexpected(error);
            WISP_TRY(leap(error, moves.back()));
            return report(true);
        }
        if (moves.empty()) lag = 0;
        return report(moved);
    }

    /// By the one object that follows where the replica stands.
    Result<void> take(const TrlObject& object) {
        const Stopwatch start;
        WISP_ASSIGN(const fs::path file, bucket.fetch(object));
        const Weights& weights = *replica.weights();
        WISP_ASSIGN(const TrlMove move, move_from(weights, object, file, options.threads));
        // A file of another writer does not say where it leads, and the replica must know before.
        WISP_ASSIGN(const ApplyReport proof,
                    prove_changes(weights, at.state, {move.delta}, options.threads));
        const bool proven =
            object.kind == TrlObject::Kind::kDelta ? proof.result_proven : move.vouched;
        const ReplicaRecord after = trl_record(run, {object.step, proof.result, proven});
        WISP_TRY(replica.apply({move.delta}, after));
        at = after;
        TrlReached reached;
        reached.deltas = 1;
        reached.changed_elements = proof.changed_elements;
        return tell_moved(FollowEvent::Kind::kApplied, reached, start.seconds());
    }

    /// Over what cannot be taken, by a later anchor; from any when the state here is in doubt.
    Result<void> leap(const Error& error, const TrlObject& newest) {
        const bool in_doubt =
            error.kind == ErrorKind::kWrongBase || error.kind == ErrorKind::kInvalid;
        if (!in_doubt) {
            WISP_ASSIGN(const auto ahead, list(TrlObject::Kind::kAnchor, at.step));
            if (ahead.empty()) return std::unexpected(error);
        }
        if (newest.step <= at.step) return std::unexpected(error);
        WISP_TRY(tell_fault(error));
        const auto joined = join(at.step);
        if (joined && *joined) return {};
        if (!joined && !is_about_content(joined.error().kind)) {
            return std::unexpected(joined.error());
        }
        return std::unexpected(error);
    }

    /// Starts over from the newest anchor that is whole; nothing is changed before the new state
    /// stands, and only for one after `beyond`. False: the bucket is empty.
    Result<bool> join(std::optional<std::uint64_t> beyond) {
        WISP_ASSIGN(const auto anchors, list(TrlObject::Kind::kAnchor, std::nullopt));
        WISP_ASSIGN(const auto whole, whole_schema(anchors));
        std::optional<Error> last;
        for (auto anchor = anchors.rbegin(); anchor != anchors.rend(); ++anchor) {
            const auto reached = join_from(&*anchor, whole, beyond);
            if (reached && reached->stopped) return std::unexpected(*reached->stopped);
            if (reached) return true;
            if (!is_about_content(reached.error().kind)) return std::unexpected(reached.error());
            last = reached.error();
            if (last->kind == ErrorKind::kInvalid) {
                last = Error{ErrorKind::kCorrupt,
                             fmt::format("{}; the anchor of step {} may lack tensors that had not "
                                         "changed: start from an earlier one, or name a base",
                                         last->text, anchor->step)};
            }
            WISP_TRY(tell_fault(*last));
        }
        WISP_ASSIGN(const auto deltas, list(TrlObject::Kind::kDelta, std::nullopt));
        if (anchors.empty() && deltas.empty()) return false;
        if (options.base) {
            WISP_ASSIGN(const TrlReached reached, join_from(nullptr, whole, beyond));
            if (reached.stopped) return std::unexpected(*reached.stopped);
            return true;
        }
        if (last) return std::unexpected(*last);
        return fail(ErrorKind::kGap,
                    fmt::format("{} holds deltas but no anchor to start from; publish an anchor, "
                                "or name the checkpoint they start from as the base",
                                shown(bucket.where().url)));
    }

    /// What an anchor must hold: known from the base, the state here, or the first anchor, which
    /// TRL writes in full.
    Result<std::optional<Schema>> whole_schema(const std::vector<TrlObject>& anchors) {
        if (options.base) {
            WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*options.base));
            return std::optional(base.schema());
        }
        if (replica.weights() != nullptr) return std::optional(replica.weights()->schema());
        if (anchors.size() < 2) return std::optional<Schema>{};
        auto first = bucket.schema_of(anchors.front());
        if (first) return std::optional(std::move(*first));
        if (is_about_content(first.error().kind)) return std::optional<Schema>{};
        return std::unexpected(std::move(first).error());
    }

    /// From an anchor, or from the base when there is none.
    Result<TrlReached> join_from(const TrlObject* anchor, const std::optional<Schema>& whole,
                                 std::optional<std::uint64_t> beyond) {
        const Stopwatch start;
        const fs::path folder = replica.scratch() / "incoming";
        std::error_code error;
        fs::remove_all(folder, error);
        fs::create_directories(folder, error);
        if (error) return std::unexpected(file_error("create", folder, error.value()));
        TrlReached from;
        if (anchor != nullptr) {
            WISP_ASSIGN(from.at, unpack_anchor(bucket, *anchor, whole, folder, options.threads));
            from.anywhere = true;
        }
        WISP_TRY(copy_base(folder, anchor != nullptr));
        if (anchor == nullptr) {
            WISP_ASSIGN(const Checkpoint base, Checkpoint::open(folder));
            WISP_ASSIGN(from.at.state, digest_of(base, options.threads));
        }
        WISP_ASSIGN(const auto moves,
                    moves_after(anchor == nullptr ? std::nullopt : std::optional(anchor->step)));
        WISP_ASSIGN(const TrlReached reached,
                    replay_trl(bucket, folder, std::move(from), moves, options.threads));
        if (beyond && reached.at.step <= *beyond) {
            return fail(ErrorKind::kGap, fmt::format("from the anchors no later step than {} can "
                                                     "be reached",
                                                     reached.at.step));
        }
        const ReplicaRecord after = trl_record(run, reached.at);
        WISP_TRY(replica.adopt(folder, after));
        at = after;
        lag = static_cast<std::uint64_t>(std::ranges::count_if(
            moves, [&](const TrlObject& move) { return move.step > at.step; }));
        WISP_TRY(tell_moved(FollowEvent::Kind::kJoined, reached, start.seconds()));
        return reached;
    }

    /// The base's files, or only those beside its weights.
    Result<void> copy_base(const fs::path& folder, bool without_weights) {
        if (!options.base) return {};
        WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*options.base));
        WISP_ASSIGN(auto files, files_of(base));
        if (without_weights) {
            std::erase_if(files, [](const CheckpointSource& file) {
                return file.weights || file.name == kShardIndexName;
            });
        }
        return copy_files(files, folder);
    }

    Milliseconds pause() {
        const std::int64_t wait = std::min(options.poll, kLongestWait).count();
        // Replicas started together must not ask together for ever.
        const std::int64_t tenth = wait / 10;
        return Milliseconds(
            wait - tenth +
            static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * tenth + 1))));
    }
};

TrlFollower::TrlFollower(std::unique_ptr<State> state) : state_(std::move(state)) {}
TrlFollower::TrlFollower(TrlFollower&&) noexcept = default;
TrlFollower& TrlFollower::operator=(TrlFollower&&) noexcept = default;
TrlFollower::~TrlFollower() = default;

Result<TrlFollower> TrlFollower::open(const Location& where, Replica& replica,
                                      const FollowOptions& options) {
    const StopScope scope(options.run.stop);
    if (!options.run.trust.keys.empty()) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("nothing in {} is signed, as TRL's layout has no place for it; do "
                                "not name keys, or use wisp's own layout",
                                shown(where.url)));
    }
    WISP_ASSIGN(const auto record, replica.load());
    auto state = std::make_unique<State>(where, replica, on_terms_of(*where.store, options));
    if (record && record->run != state->run) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} follows another bucket or run than {}; use another folder "
                                "for it",
                                shown(replica.label()), shown(where.url)));
    }
    if (record) state->at = *record;
    state->at.run = state->run;
    return TrlFollower(std::move(state));
}

Result<FollowReport> TrlFollower::catch_up() {
    const StopScope scope(state_->options.run.stop);
    return state_->events.outcome(state_->catch_up());
}

Result<FollowReport> TrlFollower::follow() {
    const StopScope scope(state_->options.run.stop);
    Clock& clock = *state_->options.run.clock;
    for (int failures = 0;;) {
        auto report = state_->catch_up();
        if (!report) {
            const ErrorKind kind = report.error().kind;
            // The store will come back, and a file may be written to its end.
            const bool heals = kind == ErrorKind::kUnavailable || kind == ErrorKind::kCorrupt;
            if (kind == ErrorKind::kUnavailable && stopped()) return state_->report(false);
            if (!heals || stopped() || !state_->tell_fault(report.error())) {
                return state_->events.outcome(std::move(report));
            }
            failures = std::min(failures + 1, 6);
            const Milliseconds wait = state_->pause() * (std::int64_t{1} << failures);
            clock.sleep_for(std::min(wait, kLongestWait));
            continue;
        }
        failures = 0;
        if (report->reached_until || stopped()) return report;
        // After a move there may be more: whoever waits for the newest must not take it for that.
        const FollowEvent waiting = state_->event(FollowEvent::Kind::kWaiting);
        if (!report->moved && !state_->events.tell(waiting)) {
            return state_->events.outcome(std::move(report));
        }
        clock.sleep_for(state_->pause());
        if (stopped()) return report;
    }
}

const ReplicaRecord& TrlFollower::at() const {
    return state_->at;
}

}  // namespace wisp
