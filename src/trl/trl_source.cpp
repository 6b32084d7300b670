#include <fmt/format.h>

#include <algorithm>

#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/deliver_changes.hpp"
#include "follow/follow_source.hpp"
#include "follow/replica_updater.hpp"
#include "trl/trl_replay.hpp"
#include "wisp/control.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// Another start may do where this one did not.
bool is_about_content(ErrorKind kind) {
    return kind == ErrorKind::kCorrupt || kind == ErrorKind::kGap ||
           kind == ErrorKind::kWrongBase || kind == ErrorKind::kInvalid ||
           kind == ErrorKind::kUnsupported;
}

class TrlSource : public FollowSource {
  public:
    TrlSource(const Location& where, Replica& held, const FollowOptions& options,
              ReplicaRecord record)
        : FollowSource(where, held, options, std::move(record)),
          bucket_(where, replica.scratch() / "fetched", options.parallel_fetches) {}

    /// A bucket without what this replica has seen is another history.
    Result<void> check_past() override {
        if (!has_state()) return {};
        const auto before = at_.step == 0 ? std::nullopt : std::optional(at_.step - 1);
        WISP_ASSIGN(const auto deltas, look(TrlObject::Kind::kDelta, before));
        WISP_ASSIGN(const auto anchors, look(TrlObject::Kind::kAnchor, before));
        if (!deltas.empty() || !anchors.empty()) return {};
        if (!progress.options.accept_rewind) {
            return fail(ErrorKind::kForked,
                        fmt::format("{} is at step {}, but {} ends before it: the bucket was set "
                                    "back or is another one; stop and look, or pass "
                                    "--accept-rewind",
                                    shown(replica.label()), at_.step, shown(bucket_.where().url)));
        }
        WISP_TRY(replica.discard());
        forget_state(at_);
        return {};
    }

    Result<bool> catch_up(bool) override {
        if (!has_state()) return join(std::nullopt);
        WISP_ASSIGN(const auto moves, moves_after(at_.step));
        note_left(moves.size());
        for (std::size_t i = 0; i < moves.size(); ++i) {
            if (stopped()) return i > 0;
            const auto taken = take(moves[i], moves.size() - i - 1);
            bucket_.clear();
            if (taken) continue;
            if (!is_about_content(taken.error().kind)) return std::unexpected(taken.error());
            WISP_TRY(leap(taken.error()));
            return true;
        }
        return !moves.empty();
    }

    /// The store will come back, and a file may be written to its end.
    bool heals(ErrorKind kind) const override {
        return kind == ErrorKind::kCorrupt || FollowSource::heals(kind);
    }

  private:
    bool has_state() const { return at_.state_seq != 0 && replica.weights() != nullptr; }

    /// Numbers are left out between steps, so the moves are what counts.
    void note_left(std::size_t moves) { progress.head.state_index = at_.state_index + moves; }

    Result<std::vector<TrlObject>> look(TrlObject::Kind kind, std::optional<std::uint64_t> after) {
        WISP_ASSIGN(auto objects, bucket_.list(kind, after));
        for (const TrlObject& object : objects) {
            progress.know({object.step + 1, progress.head.state_index, object.info.modified_ms, 0},
                          true);
        }
        return objects;
    }

    /// What lies behind `after`, as far as it is wanted.
    Result<std::vector<TrlObject>> list(TrlObject::Kind kind, std::optional<std::uint64_t> after) {
        WISP_ASSIGN(auto objects, look(kind, after));
        std::erase_if(objects,
                      [&](const TrlObject& object) { return progress.is_past_bound(object.step); });
        return objects;
    }

    Result<std::vector<TrlObject>> moves_after(std::optional<std::uint64_t> step) {
        WISP_ASSIGN(const auto deltas, list(TrlObject::Kind::kDelta, step));
        // TRL writes an anchor in place of a delta, so that deltas alone do not tell all.
        WISP_ASSIGN(const auto anchors, list(TrlObject::Kind::kAnchor, step));
        return moves_of(deltas, anchors);
    }

    Result<void> stand_at(const TrlReached& reached, std::size_t left, const Stopwatch& start,
                          bool joined) {
        at_ = trl_record(at_.run, reached.at);
        note_left(left);
        Moved moved;
        moved.joined = joined;
        moved.deltas = reached.deltas;
        moved.changed_elements = reached.changed_elements;
        moved.fetched = bucket_.take_counts();
        moved.apply_seconds = std::max(0.0, start.seconds() - moved.fetched.fetch_seconds);
        return progress.tell_moved(moved);
    }

    /// By the one object that follows where the replica stands.
    Result<void> take(const TrlObject& object, std::size_t left) {
        const Stopwatch start;
        const unsigned threads = progress.options.threads;
        WISP_ASSIGN(const fs::path file, bucket_.fetch(object));
        const Weights& weights = *replica.weights();
        WISP_ASSIGN(const TrlMove move, move_from(weights, object, file, threads));
        // A file of another writer does not say where it leads, and the replica must know before.
        WISP_ASSIGN(const ApplyReport proof,
                    prove_changes(weights, at_.state, {move.delta}, threads));
        TrlReached reached;
        reached.at = {object.step, proof.result,
                      object.kind == TrlObject::Kind::kDelta ? proof.result_proven : move.vouched};
        reached.deltas = 1;
        reached.changed_elements = proof.changed_elements;
        WISP_TRY(replica.apply({move.delta}, trl_record(at_.run, reached.at)));
        return stand_at(reached, left, start, false);
    }

    /// Over what cannot be taken, by a later anchor; from any when the state here is in doubt.
    Result<void> leap(const Error& error) {
        const bool in_doubt =
            error.kind == ErrorKind::kWrongBase || error.kind == ErrorKind::kInvalid;
        if (!in_doubt) {
            WISP_ASSIGN(const auto ahead, list(TrlObject::Kind::kAnchor, at_.step));
            if (ahead.empty()) return std::unexpected(error);
        }
        WISP_TRY(progress.tell_fault(error));
        const auto joined = join(at_.step);
        if (joined && *joined) return {};
        if (!joined && !is_about_content(joined.error().kind)) {
            return std::unexpected(joined.error());
        }
        return std::unexpected(error);
    }

    /// Starts over from the newest anchor that is whole, and else from the base; nothing is changed
    /// before the new state stands, and only for one after `beyond`. False: the bucket is empty.
    Result<bool> join(std::optional<std::uint64_t> beyond) {
        WISP_ASSIGN(const auto anchors, list(TrlObject::Kind::kAnchor, std::nullopt));
        WISP_ASSIGN(const auto whole, whole_schema(anchors));
        std::optional<Error> last;
        for (auto anchor = anchors.rbegin(); anchor != anchors.rend(); ++anchor) {
            const auto joined = join_from(&*anchor, whole, beyond);
            if (joined) return reached_end(*joined);
            if (!is_about_content(joined.error().kind)) return std::unexpected(joined.error());
            last = joined.error();
            if (last->kind == ErrorKind::kInvalid) {
                last = Error{ErrorKind::kCorrupt,
                             fmt::format("{}; the anchor of step {} may lack tensors that had not "
                                         "changed: start from an earlier one, or name a base",
                                         last->text, anchor->step)};
            }
            WISP_TRY(progress.tell_fault(*last));
        }
        WISP_ASSIGN(const auto deltas, list(TrlObject::Kind::kDelta, std::nullopt));
        if (anchors.empty() && deltas.empty()) return false;
        if (progress.options.base) {
            WISP_ASSIGN(const TrlReached joined, join_from(nullptr, whole, beyond));
            return reached_end(joined);
        }
        if (last) return std::unexpected(*last);
        return fail(ErrorKind::kGap,
                    fmt::format("{} holds deltas but no anchor to start from; publish an anchor, "
                                "or name the checkpoint they start from as the base",
                                shown(bucket_.where().url)));
    }

    static Result<bool> reached_end(const TrlReached& joined) {
        if (joined.stopped) return std::unexpected(*joined.stopped);
        return true;
    }

    /// What an anchor must hold: known from the base, the state here, or the first anchor, which
    /// TRL writes in full.
    Result<std::optional<Schema>> whole_schema(const std::vector<TrlObject>& anchors) {
        if (progress.options.base) {
            WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*progress.options.base));
            return std::optional(base.schema());
        }
        if (replica.weights() != nullptr) return std::optional(replica.weights()->schema());
        if (anchors.size() < 2) return std::optional<Schema>{};
        auto first = bucket_.schema_of(anchors.front());
        if (first) return std::optional(std::move(*first));
        if (is_about_content(first.error().kind)) return std::optional<Schema>{};
        return std::unexpected(std::move(first).error());
    }

    /// From an anchor, or from the base when there is none.
    Result<TrlReached> join_from(const TrlObject* anchor, const std::optional<Schema>& whole,
                                 std::optional<std::uint64_t> beyond) {
        const Stopwatch start;
        const FollowOptions& options = progress.options;
        WISP_ASSIGN(const fs::path folder, make_incoming(replica));
        TrlReached from;
        if (anchor != nullptr) {
            WISP_ASSIGN(from.at, unpack_anchor(bucket_, *anchor, whole, folder, options.threads));
            from.anywhere = true;
        }
        if (options.base) WISP_TRY(copy_base(*options.base, folder, anchor != nullptr));
        if (anchor == nullptr) {
            WISP_ASSIGN(const Checkpoint base, Checkpoint::open(folder));
            WISP_ASSIGN(from.at.state, digest_of(base, options.threads));
        }
        WISP_ASSIGN(const auto moves,
                    moves_after(anchor == nullptr ? std::nullopt : std::optional(anchor->step)));
        WISP_ASSIGN(const TrlReached reached,
                    replay_trl(bucket_, folder, std::move(from), moves, options.threads));
        if (beyond && reached.at.step <= *beyond) {
            return fail(ErrorKind::kGap, fmt::format("from the anchors no later step than {} can "
                                                     "be reached",
                                                     reached.at.step));
        }
        WISP_TRY(replica.adopt(folder, trl_record(at_.run, reached.at)));
        const auto left = std::ranges::count_if(
            moves, [&](const TrlObject& move) { return move.step > reached.at.step; });
        WISP_TRY(stand_at(reached, static_cast<std::size_t>(left), start, true));
        return reached;
    }

    TrlBucket bucket_;
    ReplicaRecord& at_ = progress.at;
};

}  // namespace

Result<Follower> open_trl_follower(const Location& where, Replica& replica,
                                   const FollowOptions& options) {
    const StopScope scope(options.run.stop);
    if (!options.run.trust.keys.empty()) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("nothing in {} is signed, as TRL's layout has no place for it; do "
                                "not name keys, or use wisp's own layout",
                                shown(where.url)));
    }
    WISP_ASSIGN(ReplicaRecord record, read_record(replica, trl_run_id(where), where));
    return Follower(std::make_unique<TrlSource>(where, replica, options, std::move(record)));
}

}  // namespace wisp
