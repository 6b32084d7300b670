// The part of RunView that asks the bucket, and what it makes of it: what is new, heartbeats over
// time, the verdict.
#include <algorithm>
#include <chrono>

#include "run_view.hpp"
#include "verdict_json.hpp"
#include "wisp/run_status.hpp"

namespace wisp::cli {
namespace {

constexpr std::int64_t kHeadMs = 1'000;       // how old an answer about the head may be
constexpr std::int64_t kReplicasMs = 2'000;   // about replicas: a listing, and one read for each
constexpr std::int64_t kStatusMs = 30'000;    // about the rest, while the head stays
constexpr std::int64_t kCountedMs = 120'000;  // about sizes in the bucket: lists everything
constexpr std::int64_t kDrawnMs = 3'000;      // by then a page that was opened is drawn

// Of heartbeats: a day of one each half minute.
constexpr std::int64_t kBeatsKeptMs = 24 * 3'600'000;
constexpr std::size_t kBeatsKept = 2'880;
constexpr std::size_t kReplicasKept = 1'000;
// Two looks at the same heartbeat differ by what the clocks of two machines do meanwhile.
constexpr std::int64_t kSameBeatMs = 100;

bool is_older(const std::optional<std::int64_t>& when, std::int64_t limit) {
    return !when || steady_ms() - *when >= limit;
}

}  // namespace

std::int64_t steady_ms() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Result<void> RunView::refresh() {
    const std::scoped_lock asking(refresh_mutex_);
    auto read = read_news();
    const std::scoped_lock lock(mutex_);
    const std::int64_t now = access_.options.clock->now_ms();
    if (read) {
        trouble_.reset();
        return read;
    }
    if (!trouble_) trouble_since_ms_ = now;
    trouble_ = read.error();
    return read;
}

// Members are read here without mutex_: only this function and those it calls write them.
Result<void> RunView::read_news() {
    // Some stores count requests, and say how often one may ask.
    const StoreTerms terms = access_.where.store->terms();
    if (!trouble_ && !is_older(refreshed_ms_, std::max<std::int64_t>(kHeadMs, terms.poll_ms))) {
        return {};
    }
    const std::uint64_t known = lines_.empty() ? 0 : lines_.back().commit.seq;
    auto history = read_history(access_.where, known, options_.commits, access_.options);
    if (!history) return std::unexpected(std::move(history).error());
    const bool news = !history->commits.empty();
    {
        const std::scoped_lock lock(mutex_);
        if (news) {
            merged_deltas_ = std::move(history->merged_deltas);
            full_bytes_ = history->full_bytes;
        }
        for (HistoryEntry& line : history->commits) lines_.push_back(std::move(line));
        while (lines_.size() > options_.commits) lines_.pop_front();
    }
    if (news || is_older(status_ms_, kStatusMs) || (status_ms_ && !counted_ms_ && may_count())) {
        if (auto read = read_state(); !read) return read;
    }
    if (is_older(replicas_ms_, terms.few_requests ? kStatusMs : kReplicasMs)) {
        if (auto read = read_heartbeats(); !read) return read;
    }
    const std::scoped_lock lock(mutex_);
    refreshed_ms_ = steady_ms();
    read_ms_ = access_.options.clock->now_ms();
    return {};
}

void RunView::note_asked() {
    const std::int64_t now = steady_ms();
    asked_ms_ = now;
    std::int64_t never = 0;
    first_asked_ms_.compare_exchange_strong(never, now);
}

bool RunView::may_count() const {
    return first_asked_ms_ != 0 && steady_ms() - first_asked_ms_ > kDrawnMs;
}

Result<void> RunView::read_state() {
    // A first answer does not wait for a listing of all objects; a later one has it.
    const bool count =
        counts_at_once_ || (status_ms_ && may_count() && is_older(counted_ms_, kCountedMs));
    auto status = read_status(access_.where, access_.options, count, std::nullopt);
    if (!status) return std::unexpected(std::move(status).error());
    const std::scoped_lock lock(mutex_);
    if (count) {
        counted_ms_ = steady_ms();
    } else {
        status->stored = status_.stored;
    }
    status_ = std::move(*status);
    status_ms_ = steady_ms();
    return {};
}

Result<void> RunView::read_heartbeats() {
    auto replicas = read_replicas(access_.where, access_.options);
    if (!replicas) return std::unexpected(std::move(replicas).error());
    const std::scoped_lock lock(mutex_);
    replicas_ = std::move(*replicas);
    replicas_ms_ = steady_ms();
    keep_beats();
    return {};
}

void RunView::keep_beats() {
    const std::int64_t now = access_.options.clock->now_ms();
    for (const ReplicaHealth& replica : replicas_) {
        if (!beats_.contains(replica.summary.id) && beats_.size() >= kReplicasKept) continue;
        auto& beats = beats_[replica.summary.id];
        const std::int64_t heard = now - replica.summary.seen_ms;
        if (!beats.empty() && heard <= beats.back().heard_ms + kSameBeatMs) continue;
        beats.push_back({heard, replica.summary.seq, replica.summary.lag_steps, replica.pause_us});
    }
    for (auto& [id, beats] : beats_) {
        while (!beats.empty() &&
               (beats.size() > kBeatsKept || beats.front().heard_ms < now - kBeatsKeptMs)) {
            beats.pop_front();
        }
    }
    std::erase_if(beats_, [](const auto& item) { return item.second.empty(); });
}

std::vector<ReplicaHealth> RunView::replicas_now() const {
    std::vector<ReplicaHealth> replicas = replicas_;
    const std::int64_t since = replicas_ms_ ? steady_ms() - *replicas_ms_ : 0;
    for (ReplicaHealth& replica : replicas) replica.summary.seen_ms += since;
    return replicas;
}

RunVerdict RunView::verdict() const {
    if (trouble_) return verdict_of(*trouble_);
    Vitals vitals;
    vitals.now_ms = access_.options.clock->now_ms();
    vitals.commits = judged_commits();
    for (ReplicaHealth& replica : replicas_now()) {
        const auto beats = beats_.find(replica.summary.id);
        WatchedReplica watched{std::move(replica), {}};
        if (beats != beats_.end()) {
            watched.beats.assign(beats->second.begin(), beats->second.end());
        }
        vitals.replicas.push_back(std::move(watched));
    }
    return judge_run(vitals);
}

std::vector<HistoryEntry> RunView::judged_commits() const {
    const std::size_t skipped = lines_.size() - std::min(lines_.size(), kJudgedCommits);
    return {lines_.begin() + static_cast<std::ptrdiff_t>(skipped), lines_.end()};
}

Json RunView::trouble_json() const {
    if (!trouble_) return nullptr;
    return {{"error", name_of(trouble_->kind)},
            {"message", trouble_->text},
            {"since_ms", trouble_since_ms_},
            {"read_ms", read_ms_}};
}

Result<void> RunView::require_data() const {
    if (read_ms_ != 0) return {};
    if (trouble_) return std::unexpected(*trouble_);
    return fail(ErrorKind::kUnavailable, "the run is being read; ask again");
}

Result<Json> RunView::beats(std::int64_t after_ms) {
    note_asked();
    const std::scoped_lock lock(mutex_);
    if (auto there = require_data(); !there) return std::unexpected(there.error());
    Json replicas = Json::array();
    for (const auto& [id, beats] : beats_) {
        Json points = Json::array();
        for (const BeatSample& beat : beats) {
            if (beat.heard_ms <= after_ms) continue;
            Json point = {beat.heard_ms, beat.lag_steps, nullptr};
            if (beat.pause_us) point[2] = static_cast<double>(*beat.pause_us) / 1000;
            points.push_back(std::move(point));
        }
        replicas.push_back({{"id", id}, {"beats", std::move(points)}});
    }
    return Json{{"kept_ms", kBeatsKeptMs}, {"replicas", std::move(replicas)}};
}

}  // namespace wisp::cli
