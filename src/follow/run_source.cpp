#include <algorithm>

#include "base/bytes.hpp"
#include "base/try.hpp"
#include "follow/follow_source.hpp"
#include "follow/history_check.hpp"
#include "follow/replica_updater.hpp"
#include "log/heartbeat.hpp"
#include "log/run_keys.hpp"
#include "log/run_presence.hpp"
#include "log/state_search.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kQuietLooks = 8;  // of these, one also asks the hint
constexpr int kTakenAlone = 2;            // one step behind is common; more is worth a plan
constexpr Milliseconds kFarewell(500);

class RunSource : public FollowSource {
  public:
    RunSource(CommitLog log, Replica& held, const FollowOptions& options, ReplicaRecord record)
        : FollowSource(log.where(), held, options, std::move(record)),
          log_(std::move(log)),
          updater_(log_, replica, at_, updater_options()) {
        log_.require_serial(at_.certificate_serial);
        log_.on_void([this](std::uint64_t seq, const Error& why) {
            // Once each: it stays there for ever. A refusal is found where the call ends.
            if (seq > highest_void_) (void)progress.tell_fault(why, true);
            highest_void_ = std::max(highest_void_, seq);
        });
    }

    ~RunSource() override {
        // Advice is worth a moment of a process that wants to end, and no more.
        std::optional<StopScope> scope;
        if (stopped()) scope.emplace(kFarewell);
        beat(ReplicaStatus::kStopped, true);
    }

    Result<void> check_past() override {
        marked_state_ = 0;
        WISP_ASSIGN(const auto own, past().find_mark());
        if (own) {
            marked_state_ = own->commit.state.seq;
            // A replica that starts up to date must also notice when the run falls silent.
            know(*own);
        } else if (progress.options.accept_rewind) {
            // What was seen counts no more; the weights are kept until another state is there.
            at_.seq = at_.epoch = 0;
            at_.commit_hash.clear();
            forget_state(at_);
        }
        return {};
    }

    Result<bool> catch_up(bool thorough) override {
        auto moved = take_steps(thorough);
        if (moved && !*moved) WISP_TRY(presence_.check());
        beat(ReplicaStatus::kFollowing, moved && *moved && last_heartbeat_ms_ == 0);
        return moved;
    }

    bool heals(ErrorKind kind) const override {
        // It may be put back; until then the last good state is served.
        if (kind == ErrorKind::kNoRun) return true;
        // Credentials are renewed; what nobody trusted vouches for stays so.
        if (kind == ErrorKind::kDenied) return is_refused_by_store();
        return FollowSource::heals(kind);
    }

  private:
    ReplicaUpdaterOptions updater_options() {
        const FollowOptions& options = progress.options;
        return {options.threads,
                options.parallel_fetches,
                options.base,
                [this](const Moved& moved) {
                    last_pause_us_ = static_cast<std::int64_t>(moved.apply_seconds * 1e6);
                    return progress.tell_moved(moved);
                },
                [this](const Error& error) { return progress.tell_fault(error); },
                options.transfers};
    }

    bool is_refused_by_store() const {
        const auto found = log_.where().store->head(log_.where().key(kRunKey));
        return !found && found.error().kind == ErrorKind::kDenied;
    }

    HistoryCheck past() const {
        return {log_, at_, replica.label(), progress.options.accept_rewind};
    }

    void know(const LogEntry& entry) {
        const Commit& commit = entry.commit;
        KnownHead head{commit.seq, commit.state.state_index, commit.time_ms, commit.expires_ms};
        // By its own word, or its certificate's.
        const std::int64_t ends = entry.signer.ends_ms;
        if (ends != 0 && (head.expires_ms == 0 || ends < head.expires_ms)) head.expires_ms = ends;
        progress.know(head, commit.makes_state());
    }

    void stand_past(const LogEntry& entry) {
        marked_state_ = entry.commit.state.seq;
        log_.require_serial(at_.certificate_serial);
        presence_.note();
    }

    /// By the next commits one by one, which costs two requests each; by a plan where that does not
    /// do.
    Result<bool> take_steps(bool thorough) {
        bool moved = false;
        for (int taken = 0;; ++taken) {
            if (stopped()) return moved;
            // Below its mark it stands when a bound kept it there.
            if (at_.state_seq == 0 || taken == kTakenAlone || marked_state_ > at_.state_seq) {
                return leap(moved);
            }
            WISP_ASSIGN(const Slot slot, log_.next(at_.seq));
            if (slot.kind != Slot::Kind::kCommit) {
                WISP_ASSIGN(const bool more, is_more_behind(slot.kind, thorough));
                return more ? leap(moved) : moved;
            }
            quiet_looks_ = 0;
            const Commit& commit = slot.entry->commit;
            const auto took = take(*slot.entry);
            if (!took) {
                if (!is_worth_a_plan(took.error().kind)) return std::unexpected(took.error());
                WISP_TRY(progress.tell_fault(took.error()));
                return leap(moved);
            }
            if (!*took) return moved;
            if (!commit.makes_state()) continue;
            moved = true;
            if (!thorough && is_young(commit)) return moved;
        }
    }

    /// False: it lies behind the step to stop at.
    Result<bool> take(const LogEntry& next) {
        WISP_TRY(past().check_follows(next));
        know(next);
        const Commit& commit = next.commit;
        if (commit.makes_state() && progress.is_past_bound(commit.state.step)) return false;
        WISP_TRY(updater_.take(next));
        stand_past(next);
        return true;
    }

    static bool is_worth_a_plan(ErrorKind kind) {
        return kind == ErrorKind::kGap || kind == ErrorKind::kCorrupt ||
               kind == ErrorKind::kWrongBase;
    }

    /// Nothing in the next slot counts by itself: a commit that has lapsed since, a tombstone, or
    /// nothing. Whether the head has to tell what it is worth.
    Result<bool> is_more_behind(Slot::Kind next, bool thorough) {
        if (next != Slot::Kind::kAbsent) return true;
        const bool look = thorough || ++quiet_looks_ % kQuietLooks == 0;
        return look ? past().skips_a_commit() : Result<bool>(false);
    }

    /// Whether a commit is so young that another one behind it would be a surprise.
    bool is_young(const Commit& commit) const {
        const std::int64_t age = progress.options.run.clock->now_ms() - commit.time_ms;
        return age >= 0 && age < std::max<std::int64_t>(progress.options.poll.count(), 100);
    }

    /// To the head, or as far as asked.
    Result<bool> leap(bool moved) {
        const std::uint64_t before = at_.state_seq;
        std::optional<Lineage> history;
        Aim aim;
        aim.newest = [&]() -> Result<Lineage*> {
            WISP_ASSIGN(const auto head, find_head());
            if (!head) return nullptr;
            return &history.emplace(log_, *head);
        };
        aim.target = [&](Lineage& newest) { return find_target(newest); };
        WISP_ASSIGN(const bool went, updater_.go(aim));
        // Bounded, it stands below the head, and knows it.
        if (went) stand_past(history->head());
        return moved || at_.state_seq != before;
    }

    /// Nothing where it is to stay: there is no state yet, or none that is newer.
    Result<std::optional<LogEntry>> find_head() {
        auto found = log_.head(progress.options.accept_rewind ? 0 : at_.seq);
        if (at_.state_seq != 0 && past().is_no_newer(found)) {
            WISP_ASSIGN(const bool current, past().still_has_mark());
            if (current && !found) WISP_TRY(progress.tell_fault(found.error()));
            if (current) return std::nullopt;
        }
        if (found && *found && (*found)->commit.state.seq == 0) return std::nullopt;
        return found;
    }

    Result<std::optional<StateName>> find_target(Lineage& history) {
        WISP_TRY(past().check_descent(history));
        know(history.head());
        const StateName& newest = history.head().commit.state;
        if (!progress.is_past_bound(newest.step)) return newest;
        WISP_ASSIGN(const StateName target, find_state(history, *progress.options.until_step));
        if (at_.state_seq != 0 && target.seq <= at_.state_seq) return std::nullopt;
        return target;
    }

    void beat(ReplicaStatus status, bool now) {
        const FollowOptions& options = progress.options;
        if (options.replica_id.empty()) return;
        const std::int64_t time = options.run.clock->now_ms();
        if (!now && time - last_heartbeat_ms_ < options.heartbeat.count()) return;
        last_heartbeat_ms_ = time;
        // Or it would bring back the prefix of a run that somebody deleted.
        if (!presence_.check(Milliseconds(0))) return;
        const std::string text =
            write_heartbeat({log_.run(), at_.seq, at_.step, at_.state_index, status, last_pause_us_,
                             options.heartbeat.count()});
        // Advice only: a replica that may not write follows all the same.
        (void)log_.where().store->put(
            log_.where().key(std::string(kReplicasPrefix) + options.replica_id), as_bytes(text));
    }

    CommitLog log_;
    RunPresence presence_{log_};
    ReplicaRecord& at_ = progress.at;
    ReplicaUpdater updater_;
    std::uint64_t marked_state_ = 0;  // the state of the commit that the record's mark is at
    std::uint64_t highest_void_ = 0;  // of the slots that were stepped over and told of
    std::uint64_t quiet_looks_ = 0;   // in a row that found the next slot empty
    std::int64_t last_heartbeat_ms_ = 0;
    std::optional<std::int64_t> last_pause_us_;
};

}  // namespace

Result<std::unique_ptr<FollowSource>> open_run_source(const Location& run, Replica& replica,
                                                      const FollowOptions& options) {
    WISP_ASSIGN(CommitLog log, CommitLog::open(run, options.run));
    WISP_ASSIGN(ReplicaRecord record, read_record(replica, log.run(), run));
    return std::make_unique<RunSource>(std::move(log), replica, options, std::move(record));
}

}  // namespace wisp
