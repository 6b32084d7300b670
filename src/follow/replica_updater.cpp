#include "follow/replica_updater.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/file.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr int kTries = 64;

void stand_at(ReplicaRecord& record, const StateName& state) {
    record.state_seq = state.seq;
    record.step = state.step;
    record.state = state.digest;
    record.unproven = false;
    record.chain_id = state.chain_id;
    record.cumulative_delta_bytes = state.cumulative_delta_bytes;
    record.state_index = state.state_index;
}

/// Worth another try: the object is gone, or not what it should be.
bool is_lost(const Error& error) {
    return error.kind == ErrorKind::kGap || error.kind == ErrorKind::kCorrupt;
}

}  // namespace

StateName state_of(const ReplicaRecord& record) {
    return {record.state_seq,
            record.step,
            record.state,
            record.chain_id,
            record.cumulative_delta_bytes,
            record.state_index};
}

ReplicaRecord record_past(const ReplicaRecord& before, const LogEntry& entry) {
    ReplicaRecord after = before;
    after.run = entry.commit.run;
    after.epoch = entry.commit.epoch;
    after.seq = entry.commit.seq;
    after.commit_hash = entry.hash;
    if (entry.signer.serial) {
        after.certificate_serial = std::max(after.certificate_serial, *entry.signer.serial);
    }
    return after;
}

ReplicaRecord record_at(const ReplicaRecord& before, const LogEntry& entry) {
    ReplicaRecord after = record_past(before, entry);
    stand_at(after, entry.commit.state);
    return after;
}

ReplicaUpdater::ReplicaUpdater(const CommitLog& log, Replica& replica, ReplicaRecord& at,
                               ReplicaUpdaterOptions options)
    : log_(log),
      replica_(replica),
      at_(at),
      options_(std::move(options)),
      tally_("fetch", options_.progress),
      fetcher_(log.where(), replica.scratch() / "fetched", options_.parallel_fetches, &tally_),
      slices_(log.where(), replica.scratch() / "fetched", options_.parallel_fetches, &tally_) {}

Result<void> ReplicaUpdater::tell(Moved moved) {
    moved.fetched = fetcher_.take_counts() += slices_.take_counts();
    return options_.on_moved ? options_.on_moved(moved) : Result<void>{};
}

void ReplicaUpdater::avoid(const StoredFile& file) {
    for (const StoredPart& part : file.parts) avoid_.insert(part.key);
}

void ReplicaUpdater::avoid(const AnchorEntry& anchor) {
    for (const StoredFile& file : anchor.files) avoid(file);
}

Result<fs::path> ReplicaUpdater::fetch(const StoredFile& file, const HeldSlices* held) {
    auto path = fetch_once(file, held);
    if (path || !is_lost(path.error())) return path;
    // What is gone is gone; what came damaged may have been so on its way here, once.
    const bool is_corrupt = path.error().kind == ErrorKind::kCorrupt;
    if (!is_corrupt || !damaged_.insert(file.parts.front().key).second) avoid(file);
    return path;
}

Result<void> ReplicaUpdater::take(const LogEntry& next) {
    const Commit& commit = next.commit;
    if (!commit.makes_state()) {
        // What the log has come to, not what the weights are.
        const ReplicaRecord past = record_past(at_, next);
        WISP_TRY(replica_.save(past));
        at_ = past;
        return {};
    }
    const ReplicaRecord after = record_at(at_, next);
    if (at_.state_seq == 0 || !commit.base || *commit.base != at_.state) {
        return fail(ErrorKind::kWrongBase,
                    fmt::format("commit {} does not start from where {} stands", commit.seq,
                                shown(replica_.label())));
    }
    Moved moved;
    if (commit.delta) {
        const auto held = commit.delta->head ? replica_.held() : nullptr;
        tally_.expect(commit.delta->bytes());
        WISP_ASSIGN(const fs::path delta, fetch_once(*commit.delta, held.get()));
        const Stopwatch timer;
        WISP_ASSIGN(const ApplyReport report, replica_.apply({delta}, after));
        moved.apply_seconds = timer.seconds();
        moved.deltas = 1;
        moved.changed_elements = report.changed_elements;
        fetcher_.clear();
    } else {
        WISP_TRY(replica_.save(after));
    }
    at_ = after;
    return tell(std::move(moved));
}

Error ReplicaUpdater::no_way(const Manifest& manifest, const StateName& target) const {
    const bool by_base =
        !manifest.anchors.empty() && manifest.anchors.back().base && !options_.base;
    return {ErrorKind::kGap,
            by_base
                ? fmt::format("the anchors of {} stand on the public checkpoint {}; get it, and "
                              "name it as the base",
                              shown(log_.where().url), shown(manifest.anchors.back().base_name))
                : fmt::format("no way leads to step {} of {}: its anchors or deltas are gone or "
                              "damaged, or stand on another base; publish an anchor",
                              target.step, shown(log_.where().url))};
}

Result<void> ReplicaUpdater::go(Lineage& history, const StateName& target) {
    Aim there;
    there.newest = [&]() -> Result<Lineage*> { return &history; };
    there.target = [&](Lineage&) -> Result<std::optional<StateName>> { return target; };
    WISP_TRY(go(there));
    return {};
}

/// The one place that decides to try again. A try that failed is followed by another only when that
/// one is different: there is something more to avoid, or to ask for a second time; the weights
/// here were given up; or there is a newer head, whose manifest leads around what retention took
/// away. So a bucket at rest runs out of reasons, and one that changes faster than it can be read
/// runs out of tries.
Result<bool> ReplicaUpdater::go(const Aim& aim) {
    std::optional<Error> failed;
    std::uint64_t aimed_at = 0;
    bool has_news = false;
    for (int tries = 1;; ++tries) {
        WISP_ASSIGN(Lineage* const history, aim.newest());
        const bool is_newer = history != nullptr && history->head().commit.seq > aimed_at;
        if (failed && !has_news && !is_newer) return std::unexpected(*failed);
        if (history == nullptr) return false;
        if (failed && options_.on_fault) WISP_TRY(options_.on_fault(*failed));
        if (is_newer) {
            // Another manifest; and what came damaged or not at all may be well by now.
            aimed_at = history->head().commit.seq;
            avoid_.clear();
            damaged_.clear();
        }
        const std::size_t known = known_losses();
        auto went = try_once(*history, aim);
        if (went || tries == kTries) return went;
        failed = std::move(went).error();
        has_news = known_losses() > known;
        if (is_lost(*failed)) continue;
        if (failed->kind != ErrorKind::kWrongBase || at_.state_seq == 0) {
            return std::unexpected(*failed);
        }
        // The weights here are not what they should be: only a whole state can mend them.
        if (options_.on_fault) WISP_TRY(options_.on_fault(*failed));
        WISP_TRY(replica_.discard());
        forget_state(at_);
        failed.reset();
    }
}

Result<bool> ReplicaUpdater::try_once(Lineage& history, const Aim& aim) {
    WISP_ASSIGN(const auto target, aim.target(history));
    if (!target) return false;
    const LogEntry& head = history.head();
    if (at_.state_seq == target->seq && at_.state == target->digest) {
        WISP_ASSIGN(const ReplicaRecord after, record_of(history, *target));
        WISP_TRY(replica_.save(after));
        at_ = after;
        return true;
    }
    WISP_ASSIGN(const Manifest manifest, log_.manifest_of(head));
    FetchPlanRequest request;
    request.target = *target;
    request.floor = head.commit.floor;
    request.avoid = avoid_;
    if (at_.state_seq != 0 && replica_.has_state()) request.here = state_of(at_);
    WISP_ASSIGN(request.base, base_digest());
    const auto plan = plan_fetch(manifest, request);
    if (!plan) return std::unexpected(no_way(manifest, *target));
    WISP_TRY(carry_out(history, *target, *plan));
    return true;
}

Result<void> ReplicaUpdater::carry_out(Lineage& history, const StateName& target,
                                       const FetchPlan& plan) {
    WISP_ASSIGN(const std::vector<WantedDelta> wanted, list_deltas(history, plan));
    tally_.expect(plan.bytes);
    Moved moved;
    WISP_ASSIGN(const ReplicaRecord after, record_of(history, target));
    if (plan.start == FetchPlan::Start::kHere) {
        // Everything is on this disk and proven before anything is changed.
        const bool sliced =
            std::ranges::any_of(wanted, [](const WantedDelta& delta) { return !!delta.file.head; });
        const auto held = sliced ? replica_.held() : nullptr;
        WISP_ASSIGN(const std::vector<Stage> stages, fetch_deltas(wanted, held.get()));
        WISP_TRY(apply_live(stages, moved));
        WISP_TRY(replica_.save(after));
    } else {
        WISP_TRY(join(plan, wanted, after, moved));
    }
    at_ = after;
    fetcher_.clear();
    return tell(std::move(moved));
}

Result<ReplicaRecord> ReplicaUpdater::record_of(Lineage& history, const StateName& target) const {
    const LogEntry& head = history.head();
    if (head.commit.state == target) return record_at(at_, head);
    ReplicaRecord after = at_;
    after.run = log_.run();
    if (target.seq < log_.first_seq()) {
        // A state from before a branch: its commit is in another log.
        after.seq = std::max(after.seq, log_.first_seq() - 1);
        after.commit_hash.clear();
    } else if (at_.seq < target.seq) {
        WISP_ASSIGN(const LogEntry entry, history.at(target.seq));
        after = record_past(at_, entry);
    }
    // How far the log was followed is not forgotten with an older state that is taken anew.
    stand_at(after, target);
    return after;
}

Result<std::vector<ReplicaUpdater::WantedDelta>> ReplicaUpdater::list_deltas(
    Lineage& history, const FetchPlan& plan) {
    std::vector<WantedDelta> wanted;
    for (const FetchStep& fetch_step : plan.steps) {
        if (fetch_step.merged_delta) {
            wanted.push_back({*fetch_step.merged_delta, fetch_step.to});
            continue;
        }
        auto walked = list_walk(history, fetch_step, wanted);
        if (walked) continue;
        if (is_lost(walked.error())) avoid_.insert(std::to_string(fetch_step.to.seq));
        return std::unexpected(std::move(walked).error());
    }
    return wanted;
}

Result<void> ReplicaUpdater::list_walk(Lineage& history, const FetchStep& fetch_step,
                                       std::vector<WantedDelta>& wanted) {
    StateName state = fetch_step.from;
    WISP_ASSIGN(const auto entries, history.between(fetch_step.from.seq, fetch_step.to.seq));
    for (const LogEntry& entry : entries) {
        const Commit& commit = entry.commit;
        if (!commit.makes_state()) continue;
        if (!commit.base || *commit.base != state.digest) {
            return fail(ErrorKind::kGap, fmt::format("commit {} starts a new chain", commit.seq));
        }
        if (commit.delta) wanted.push_back({*commit.delta, commit.state, fetch_step.to.seq});
        state = commit.state;
    }
    if (state.digest == fetch_step.to.digest) return {};
    return fail(ErrorKind::kCorrupt, fmt::format("the commits up to {} lead to another state than "
                                                 "the manifest says",
                                                 fetch_step.to.seq));
}

Result<std::vector<ReplicaUpdater::Stage>> ReplicaUpdater::fetch_deltas(
    const std::vector<WantedDelta>& wanted, const HeldSlices* held) {
    std::vector<Stage> stages;
    for (const WantedDelta& delta : wanted) {
        const std::size_t known = damaged_.size();
        auto path = fetch(delta.file, held);
        if (!path) {
            const bool may_be_well = damaged_.size() > known;
            if (delta.walked_to != 0 && is_lost(path.error()) && !may_be_well) {
                avoid_.insert(std::to_string(delta.walked_to));
            }
            return std::unexpected(std::move(path).error());
        }
        stages.push_back({std::move(*path), delta.to});
    }
    return stages;
}

std::vector<fs::path> ReplicaUpdater::next_batch(const std::vector<Stage>& stages,
                                                 std::size_t first) {
    std::vector<std::uint64_t> sizes;
    for (std::size_t i = first; i < stages.size(); ++i) {
        std::error_code ignored;  // opening it will tell
        sizes.push_back(fs::file_size(stages[i].delta, ignored));
    }
    std::vector<fs::path> deltas;
    for (std::size_t i = 0; i < batch_length(sizes); ++i) deltas.push_back(stages[first + i].delta);
    return deltas;
}

/// Each batch but the last is told of by itself: those that hold the weights for a replica, or a
/// copy of them, know of no state that they were not told of, and go on from the last one.
Result<void> ReplicaUpdater::apply_live(const std::vector<Stage>& stages, Moved& last_batch) {
    for (std::size_t first = 0, end = 0; first < stages.size(); first = end) {
        const Stopwatch timer;
        const std::vector<fs::path> deltas = next_batch(stages, first);
        end = first + deltas.size();
        ReplicaRecord after = at_;
        stand_at(after, stages[end - 1].to);
        after.seq = std::max(after.seq, after.state_seq);
        after.commit_hash.clear();
        auto report = replica_.apply(deltas, after);
        if (!report && report.error().kind == ErrorKind::kCorrupt) {
            for (std::size_t i = first; i < end; ++i) {
                avoid_.insert(std::to_string(stages[i].to.seq));
            }
        }
        if (!report) return std::unexpected(std::move(report).error());
        at_ = after;
        Moved moved;
        moved.deltas = report->deltas_applied;
        moved.changed_elements = report->changed_elements;
        moved.apply_seconds = timer.seconds();
        if (end != stages.size()) WISP_TRY(tell(moved));
        last_batch = moved;
    }
    return {};
}

Result<std::optional<StateDigest>> ReplicaUpdater::base_digest() {
    if (!options_.base || base_digest_) return base_digest_;
    WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*options_.base));
    WISP_ASSIGN(base_digest_, digest_of(base, options_.threads));
    return base_digest_;
}

}  // namespace wisp
