#include "wisp/follower.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/follow_source.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

constexpr Milliseconds kLongestAsked(300'000);  // by a store that counts requests
constexpr int kDoublings = 6;

}  // namespace

Result<ReplicaRecord> read_record(Replica& replica, const std::string& run, const Location& where) {
    WISP_ASSIGN(const auto kept, replica.load());
    ReplicaRecord record = kept.value_or(ReplicaRecord{});
    if (kept && record.run != run) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} follows run {}, but {} is run {}; use another folder for it",
                                shown(replica.label()), record.run, shown(where.url), run));
    }
    record.run = run;
    return record;
}

/// One loop, whatever is followed.
struct Follower::State {
    std::unique_ptr<FollowSource> source;
    FollowProgress& progress = source->progress;
    bool checked_past = false;

    Result<FollowReport> move(bool thorough) {
        WISP_TRY(look_again());
        // Once per process: what it takes in from now on, it sees itself.
        if (!checked_past && progress.at.seq != 0) WISP_TRY(source->check_past());
        checked_past = true;
        WISP_ASSIGN(const bool moved, source->catch_up(thorough));
        return progress.report(moved);
    }

    /// After a change that failed half-way, the replica itself tells where it stands.
    Result<void> look_again() {
        if (!source->replica.in_doubt()) return {};
        WISP_ASSIGN(const auto record, source->replica.load());
        const std::string run = progress.at.run;
        progress.at = record.value_or(ReplicaRecord{});
        progress.at.run = run;
        checked_past = false;
        return {};
    }

    Result<FollowReport> follow() {
        Clock& clock = *progress.options.run.clock;
        for (int failures = 0;;) {
            auto report = move(false);
            if (progress.refused()) return report;
            if (!report) {
                if (!source->heals(report.error().kind)) return report;
                if (stopped()) return progress.report(false);
                // Until it is well again, the last good state is served.
                WISP_TRY(progress.tell_fault(report.error()));
                failures = std::min(failures + 1, kDoublings);
                clock.sleep_for(back_off(failures, report.error()));
                continue;
            }
            failures = 0;
            if (report->reached_until || stopped()) return report;
            if (report->moved && report->lag_steps > 0) continue;
            // After a move there may be more: a caller that waits for the newest must not take it
            // for that.
            if (!report->moved) WISP_TRY(progress.tell_waiting());
            clock.sleep_for(progress.pause());
            if (stopped()) return report;
        }
    }

    Milliseconds back_off(int failures, const Error& error) {
        const Milliseconds grown = progress.pause() * (std::int64_t{1} << failures);
        const Milliseconds asked(error.retry_after_ms.value_or(0));
        return std::max(std::min(grown, FollowPace::kLongestWait), std::min(asked, kLongestAsked));
    }
};

Follower::Follower(std::unique_ptr<FollowSource> source)
    : state_(std::make_unique<State>(std::move(source))) {}
Follower::Follower(Follower&&) noexcept = default;
Follower& Follower::operator=(Follower&&) noexcept = default;
Follower::~Follower() = default;

Result<Follower> Follower::open(const Location& run, Replica& replica,
                                const FollowOptions& options) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(auto source, open_run_source(run, replica, options));
    return Follower(std::move(source));
}

Result<FollowReport> Follower::catch_up() {
    const StopScope scope(state_->progress.options.run.stop);
    return state_->progress.outcome(state_->move(true));
}

Result<FollowReport> Follower::take_next() {
    const StopScope scope(state_->progress.options.run.stop);
    return state_->progress.outcome(state_->move(false));
}

Result<FollowReport> Follower::follow() {
    const StopScope scope(state_->progress.options.run.stop);
    return state_->progress.outcome(state_->follow());
}

const ReplicaRecord& Follower::at() const {
    return state_->progress.at;
}

}  // namespace wisp
