#include "wisp/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/plural.hpp"
#include "base/text.hpp"

namespace wisp {
namespace {

constexpr std::int64_t kSecond = 1'000;
constexpr std::int64_t kMinute = 60 * kSecond;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;

// A step comes late at 4 times the usual interval; at 20 times nobody expects it by itself. A run
// of quick steps stops for an evaluation or a checkpoint without being ill.
constexpr std::int64_t kLateTimes = 4;
constexpr std::int64_t kStalledTimes = 20;
constexpr std::int64_t kSoonestLate = kMinute;
constexpr std::int64_t kSoonestStalled = 10 * kMinute;
constexpr std::size_t kFewestIntervals = 3;

constexpr std::int64_t kDefaultBeat = 30 * kSecond;
constexpr std::int64_t kSilentBeats = 3;
// Long dead replicas that nobody cleared away are not worth waking anybody for.
constexpr std::int64_t kForgotten = kDay;
constexpr std::int64_t kTimeToNotice = 10 * kSecond;
constexpr std::size_t kGrowingBeats = 3;

constexpr std::int64_t kCertificateSoon = 2 * kDay;
constexpr std::int64_t kCertificateNow = 6 * kHour;

constexpr std::size_t kNamesShown = 3;

class Judge {
  public:
    Judge(const Vitals& vitals, const VerdictLimits& limits) : vitals_(vitals), limits_(limits) {}

    RunVerdict run() {
        chain();
        head();
        replicas();
        std::ranges::stable_sort(concerns_, std::greater<>(), &Concern::severity);
        RunVerdict verdict;
        if (concerns_.empty()) {
            verdict.text = all_is_well();
            return verdict;
        }
        verdict.severity = concerns_.front().severity;
        verdict.text = concerns_.front().text;
        if (concerns_.size() > 1) verdict.text += fmt::format("; {} more", concerns_.size() - 1);
        verdict.concerns = std::move(concerns_);
        return verdict;
    }

  private:
    void add(Severity severity, ConcernCause cause, std::string text) {
        concerns_.push_back({severity, cause, std::move(text)});
    }

    std::int64_t age_of(const HistoryEntry& entry) const {
        return std::max<std::int64_t>(0, vitals_.now_ms - entry.commit.time_ms);
    }

    void chain() {
        if (vitals_.broken) {
            add(Severity::kCritical, ConcernCause::kChainBroken,
                "the chain of commits is broken: " + vitals_.broken->text);
            return;
        }
        for (std::size_t i = 1; i < vitals_.commits.size(); ++i) {
            const HistoryEntry& before = vitals_.commits[i - 1];
            const HistoryEntry& entry = vitals_.commits[i];
            if (before.commit.seq + 1 != entry.commit.seq) continue;
            if (entry.previous == before.commit.hash) continue;
            add(Severity::kCritical, ConcernCause::kChainBroken,
                fmt::format("the chain of commits is broken: commit {} does not follow commit {}",
                            entry.commit.seq, before.commit.seq));
            return;
        }
    }

    const HistoryEntry* newest_state() const {
        const auto found = std::ranges::find_if(vitals_.commits.rbegin(), vitals_.commits.rend(),
                                                &HistoryEntry::makes_state);
        return found == vitals_.commits.rend() ? nullptr : &*found;
    }

    void head() {
        if (vitals_.commits.empty()) {
            if (!vitals_.broken) {
                add(Severity::kWarning, ConcernCause::kNothingPublished,
                    "nothing was published yet");
            }
            return;
        }
        const HistoryEntry& head = vitals_.commits.back();
        if (head.expires_ms != 0 && vitals_.now_ms > head.expires_ms) {
            add(Severity::kCritical, ConcernCause::kExpired,
                fmt::format("the newest commit expired {} ago: the trainer is gone, or newer "
                            "commits are withheld",
                            human_age(vitals_.now_ms - head.expires_ms)));
        }
        certificate(head);
        // Commits that make no state, of maintenance or heartbeats, bring nobody new weights.
        if (const HistoryEntry* state = newest_state()) cadence(*state);
    }

    void certificate(const HistoryEntry& head) {
        if (head.certificate_ends_ms == 0) return;
        const std::int64_t left = head.certificate_ends_ms - vitals_.now_ms;
        if (left >= kCertificateSoon) return;
        add(left < kCertificateNow ? Severity::kCritical : Severity::kWarning,
            ConcernCause::kCertificateEnding,
            left <= 0
                ? fmt::format("the signer's certificate ended {} ago", human_age(-left))
                : fmt::format("the signer's certificate ends in {}: renew it", human_age(left)));
    }

    bool somebody_waits() const {
        return std::ranges::any_of(vitals_.replicas, [&](const WatchedReplica& replica) {
            const auto condition = condition_of(replica.health, vitals_.commits, vitals_.now_ms);
            return condition == ReplicaCondition::kFollowing ||
                   condition == ReplicaCondition::kBehind;
        });
    }

    void cadence(const HistoryEntry& state) {
        const std::int64_t age = age_of(state);
        if (limits_.age_ms && age > *limits_.age_ms) {
            add(Severity::kCritical, ConcernCause::kNoCommit,
                fmt::format("no step for {}, {} is allowed", human_age(age),
                            human_age(*limits_.age_ms)));
            return;
        }
        const auto usual = usual_interval_ms(vitals_.commits);
        if (!usual || age < std::max(kLateTimes * *usual, kSoonestLate)) return;
        const bool stalled =
            age >= std::max(kStalledTimes * *usual, kSoonestStalled) && somebody_waits();
        add(stalled ? Severity::kCritical : Severity::kWarning, ConcernCause::kNoCommit,
            fmt::format(
                "no step for {}, {:.0f} times the usual {}", human_age(age),
                static_cast<double>(age) / static_cast<double>(std::max<std::int64_t>(1, *usual)),
                human_age(*usual)));
    }

    /// Of several replicas with the same concern: a few by name, and how many there are.
    struct Named {
        std::vector<std::string> texts;
        void add_to(Judge& judge, Severity severity, ConcernCause cause, const char* many) const {
            if (texts.empty()) return;
            std::string text;
            for (std::size_t i = 0; i < std::min(texts.size(), kNamesShown); ++i) {
                text += (i == 0 ? "" : ", ") + texts[i];
            }
            if (texts.size() > kNamesShown) text += ", …";
            judge.add(severity, cause,
                      texts.size() == 1 ? "replica " + text
                                        : fmt::format("{} of {} replicas {}: {}", texts.size(),
                                                      judge.vitals_.replicas.size(), many, text));
        }
    };

    static bool grows(const std::vector<BeatSample>& beats) {
        if (beats.size() < kGrowingBeats) return false;
        const auto last = beats.end() - static_cast<std::ptrdiff_t>(kGrowingBeats);
        return std::ranges::adjacent_find(last, beats.end(), [](const auto& one, const auto& next) {
                   return one.lag_steps >= next.lag_steps;
               }) == beats.end();
    }

    void replicas() {
        Named silent;
        Named forgotten;
        Named growing;
        Named behind;
        Named beyond;
        for (const WatchedReplica& replica : vitals_.replicas) {
            const ReplicaSummary& told = replica.health.summary;
            const std::string id = shown(told.id);
            const auto condition = condition_of(replica.health, vitals_.commits, vitals_.now_ms);
            if (condition == ReplicaCondition::kStopped) continue;
            if (condition == ReplicaCondition::kSilent) {
                (told.seen_ms < kForgotten ? silent : forgotten)
                    .texts.push_back(fmt::format("{} silent for {}", id, human_age(told.seen_ms)));
            } else if (limits_.lag_steps && told.lag_steps > *limits_.lag_steps) {
                beyond.texts.push_back(fmt::format("{} {} behind, {} {} allowed", id,
                                                   many(told.lag_steps, "step"), *limits_.lag_steps,
                                                   *limits_.lag_steps == 1 ? "is" : "are"));
            } else if (grows(replica.beats)) {
                const auto& beats = replica.beats;
                growing.texts.push_back(fmt::format(
                    "{} falls behind: {}, {}, {} steps", id, beats[beats.size() - 3].lag_steps,
                    beats[beats.size() - 2].lag_steps, beats.back().lag_steps));
            } else if (condition == ReplicaCondition::kBehind) {
                behind.texts.push_back(
                    fmt::format("{} {} behind", id, many(told.lag_steps, "step")));
            }
        }
        silent.add_to(*this, Severity::kCritical, ConcernCause::kReplicaSilent, "silent");
        beyond.add_to(*this, Severity::kCritical, ConcernCause::kReplicaBehind, "too far behind");
        growing.add_to(*this, Severity::kWarning, ConcernCause::kLagGrowing, "fall behind");
        behind.add_to(*this, Severity::kWarning, ConcernCause::kReplicaBehind, "behind");
        forgotten.add_to(*this, Severity::kWarning, ConcernCause::kReplicaSilent, "silent");
    }

    std::string all_is_well() const {
        const HistoryEntry& head = vitals_.commits.back();
        const auto live = std::ranges::count_if(vitals_.replicas, [&](const WatchedReplica& one) {
            return one.health.summary.status != ReplicaStatus::kStopped;
        });
        const std::string followed = live == 0   ? std::string("no replica follows")
                                     : live == 1 ? std::string("1 replica follows")
                                                 : fmt::format("{} replicas follow", live);
        const HistoryEntry* state = newest_state();
        return fmt::format("step {}, {} ago; {}", head.commit.step,
                           human_age(age_of(state == nullptr ? head : *state)), followed);
    }

    const Vitals& vitals_;
    const VerdictLimits& limits_;
    std::vector<Concern> concerns_;
};

}  // namespace

std::string_view name_of(Severity severity) {
    switch (severity) {
        case Severity::kOk: return "ok";
        case Severity::kWarning: return "warning";
        case Severity::kCritical: return "critical";
    }
    return "critical";
}

std::string_view colour_of(Severity severity) {
    switch (severity) {
        case Severity::kOk: return "green";
        case Severity::kWarning: return "amber";
        case Severity::kCritical: return "red";
    }
    return "red";
}

std::string_view name_of(ConcernCause cause) {
    switch (cause) {
        case ConcernCause::kChainBroken: return "chain_broken";
        case ConcernCause::kExpired: return "expired";
        case ConcernCause::kNoCommit: return "no_commit";
        case ConcernCause::kCertificateEnding: return "certificate_ending";
        case ConcernCause::kReplicaSilent: return "replica_silent";
        case ConcernCause::kLagGrowing: return "lag_growing";
        case ConcernCause::kReplicaBehind: return "replica_behind";
        case ConcernCause::kNothingPublished: return "nothing_published";
        case ConcernCause::kUnreadable: return "unreadable";
    }
    return "unreadable";
}

std::string_view name_of(ReplicaCondition condition) {
    switch (condition) {
        case ReplicaCondition::kFollowing: return "ok";
        case ReplicaCondition::kBehind: return "behind";
        case ReplicaCondition::kSilent: return "dead";
        case ReplicaCondition::kStopped: return "stopped";
    }
    return "dead";
}

ReplicaCondition condition_of(const ReplicaHealth& replica,
                              const std::vector<HistoryEntry>& commits, std::int64_t now_ms) {
    const ReplicaSummary& told = replica.summary;
    if (told.status == ReplicaStatus::kStopped) return ReplicaCondition::kStopped;
    if (told.seen_ms > kSilentBeats * replica.every_ms.value_or(kDefaultBeat)) {
        return ReplicaCondition::kSilent;
    }
    // What it says is as old as its heartbeat: it is behind if a newer step had been there for a
    // while by then.
    const std::int64_t heard = now_ms - told.seen_ms - kTimeToNotice;
    const bool behind = std::ranges::any_of(commits, [&](const HistoryEntry& entry) {
        return entry.makes_state && entry.commit.seq > told.seq && entry.commit.time_ms < heard;
    });
    // Of quick steps all that are looked at may be new; further behind than that is behind.
    if (told.lag_steps > commits.size() && !commits.empty()) return ReplicaCondition::kBehind;
    return behind ? ReplicaCondition::kBehind : ReplicaCondition::kFollowing;
}

std::optional<std::int64_t> usual_interval_ms(const std::vector<HistoryEntry>& commits) {
    std::vector<std::int64_t> intervals;
    const HistoryEntry* before = nullptr;
    for (const HistoryEntry& entry : commits) {
        if (!entry.makes_state) continue;
        if (before != nullptr && entry.commit.time_ms >= before->commit.time_ms) {
            intervals.push_back(entry.commit.time_ms - before->commit.time_ms);
        }
        before = &entry;
    }
    if (intervals.size() < kFewestIntervals) return std::nullopt;
    const auto middle = intervals.begin() + static_cast<std::ptrdiff_t>(intervals.size() / 2);
    std::ranges::nth_element(intervals, middle);
    return *middle;
}

RunVerdict judge_run(const Vitals& vitals, const VerdictLimits& limits) {
    return Judge(vitals, limits).run();
}

RunVerdict verdict_of(const Error& error) {
    const bool broken = error.kind == ErrorKind::kCorrupt || error.kind == ErrorKind::kForked ||
                        error.kind == ErrorKind::kGap;
    const Concern concern{Severity::kCritical,
                          broken ? ConcernCause::kChainBroken : ConcernCause::kUnreadable,
                          broken ? "the chain of commits is broken: " + error.text : error.text};
    return {concern.severity, concern.text, {concern}};
}

std::string human_age(std::int64_t milliseconds) {
    const double seconds = static_cast<double>(milliseconds) / 1000;
    if (seconds < 120) return fmt::format("{:.1f} s", seconds);
    if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
    if (seconds < 172'800) return fmt::format("{:.1f} h", seconds / 3600);
    return fmt::format("{:.1f} d", seconds / 86'400);
}

}  // namespace wisp
