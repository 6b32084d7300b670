#include "publish/run_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "base/file.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "delta/delta_writer.hpp"
#include "follow/fetch_plan.hpp"
#include "follow/replica_updater.hpp"
#include "log/manifest.hpp"
#include "publish/guarded_replica.hpp"
#include "wisp/result.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr int kRaces = 100;
constexpr std::size_t kSchemaDigits = 32;
constexpr Milliseconds kSignedLife(24 * 3'600'000);

std::string this_writer() {
    char host[256] = "unknown";
    (void)::gethostname(host, sizeof(host) - 1);
    return fmt::format("{}:{}", printable(host), ::getpid());
}

}  // namespace

RunWriter::RunWriter(CommitLog log, Replica& baseline, const PublishOptions& options)
    : log_(std::move(log)),
      baseline_(baseline),
      options_(options),
      uploader_(log_.where(), options.parallel_uploads,
                std::max<std::uint64_t>(1, options.part_bytes)),
      writer_(this_writer()) {}

Result<std::unique_ptr<RunWriter>> RunWriter::open(const Location& run, Replica& baseline,
                                                   const PublishOptions& options) {
    WISP_ASSIGN(CommitLog log, CommitLog::open(run, options.run));
    std::unique_ptr<RunWriter> writer(new RunWriter(std::move(log), baseline, options));
    WISP_TRY(writer->start());
    return writer;
}

Result<void> RunWriter::start() {
    std::error_code error;
    const fs::path outgoing = baseline_.scratch() / "outgoing";
    fs::remove_all(outgoing, error);
    fs::create_directories(outgoing, error);
    if (error) return std::unexpected(file_error("create", outgoing, error.value()));
    WISP_TRY(begin_epoch());
    WISP_TRY(load_manifest());
    return follow_head();
}

Result<void> RunWriter::load_manifest() {
    manifest_ = {};
    while (head_) {
        auto manifest = log_.manifest_of(*head_);
        if (manifest) {
            manifest_ = std::move(*manifest);
            break;
        }
        // Whoever slept since it read the head may find its manifest buried; the newest one is
        // there.
        const std::uint64_t seq = head_->commit.seq;
        if (manifest.error().kind != ErrorKind::kGap)
            return std::unexpected(std::move(manifest).error());
        WISP_TRY(look());
        if (head_->commit.seq == seq) return std::unexpected(std::move(manifest).error());
    }
    return {};
}

fs::path RunWriter::new_file(std::string_view kind) {
    return baseline_.scratch() / "outgoing" / fmt::format("{}-{}.safetensors", kind, files_made_++);
}

Result<void> RunWriter::look() {
    if (!head_) {
        WISP_ASSIGN(head_, log_.head_for(options_.signer, options_.take_over));
        return head_ ? accept_epoch(*head_) : Result<void>{};
    }
    // What this writer stands on it has judged itself, or made: only what comes after is new.
    WISP_ASSIGN(const Slot next, log_.next(head_->commit.seq));
    if (next.kind == Slot::Kind::kAbsent) return {};
    WISP_ASSIGN(auto head, log_.head(head_->commit.seq));
    if (!head || head->commit.seq <= head_->commit.seq) return {};
    Lineage history(log_, *head);
    const bool given_up = head_->commit.seq < head->commit.floor;
    WISP_ASSIGN(const bool ours, given_up ? Result<bool>(true) : history.contains(head_->ref()));
    // What lapsed with its certificate may be stepped over: the run went on without this writer.
    if (!ours && !log_.counts(*head_)) return std::unexpected(fenced(*head));
    if (!ours) {
        return fail(ErrorKind::kForked,
                    fmt::format("the history of {} does not have commit {} as this writer knows "
                                "it: there are two histories; stop and look",
                                shown(log_.where().url), head_->commit.seq));
    }
    WISP_TRY(accept_epoch(*head));
    head_ = std::move(head);
    return {};
}

Result<void> RunWriter::reconcile() {
    WISP_TRY(look());
    WISP_TRY(load_manifest());
    return follow_head();
}

Result<void> RunWriter::follow_head() {
    FollowOptions follow;
    follow.run = options_.run;
    follow.threads = options_.threads;
    follow.parallel_fetches = options_.parallel_uploads;
    follow.base = options_.public_base;
    // Steps may be prepared meanwhile: the lock is held while the baseline moves, not while
    // fetching.
    GuardedReplica guarded(baseline_, baseline_mutex_, behind_);
    WISP_ASSIGN(Follower follower, Follower::open(log_.where(), guarded, follow));
    auto report = follower.catch_up();
    if (!report && report.error().kind == ErrorKind::kGap) {
        // Nothing can be rebuilt from what is left in the bucket: the next step is a whole state.
        WISP_TRY(guarded.discard());
    } else if (!report) {
        return std::unexpected(std::move(report).error());
    }
    {
        const std::lock_guard lock(baseline_mutex_);
        at_ = follower.at();
        behind_ = false;
    }
    if (head_ && at_.seq > head_->commit.seq) {
        // Somebody wrote since the head was read.
        WISP_TRY(look());
        WISP_TRY(load_manifest());
    }
    if (head_ && at_.state_seq != head_->commit.state.seq && !log_.counts(*head_)) {
        return fail(ErrorKind::kDenied,
                    fmt::format("the newest commits of {} have lapsed with their certificate, so "
                                "nobody can follow them; have the root certify the trainer's key "
                                "again, and open the run again",
                                shown(log_.where().url)));
    }
    needs_reconcile_ = false;
    return {};
}

std::uint64_t RunWriter::next_step() const {
    return head_ && head_->commit.state.seq != 0 ? head_->commit.state.step + 1 : 0;
}

std::optional<Milliseconds> RunWriter::commit_life() const {
    const Milliseconds life =
        options_.expires_after.value_or(log_.is_signed() ? kSignedLife : Milliseconds(0));
    return life.count() > 0 ? std::optional(life) : std::nullopt;
}

Commit RunWriter::draft(CommitKind kind) const {
    Commit commit;
    commit.kind = kind;
    commit.epoch = epoch_;
    commit.owner = owner_;
    commit.writer = writer_;
    if (const auto life = commit_life()) commit.expires_ms = log_.clock().now_ms() + life->count();
    commit.schema = std::string(kSchemaDigits, '0');
    if (!head_) return commit;
    commit.state = head_->commit.state;
    commit.schema = head_->commit.schema;
    commit.total_elements = head_->commit.total_elements;
    commit.floor = head_->commit.floor;
    commit.anchor_seq = head_->commit.anchor_seq;
    return commit;
}

/// Takes the next slot, past commits of maintenance that get in first; `place` fills in what
/// depends on the head, again for each try.
Result<LogEntry> RunWriter::append_beside(
    Commit commit, const std::function<void(Commit&, std::uint64_t seq)>& place) {
    for (int race = 0; race < kRaces; ++race) {
        if (head_) commit.floor = head_->commit.floor;
        needs_reconcile_ = true;
        const auto draft = [&](std::uint64_t seq) {
            place(commit, seq);
            return commit;
        };
        WISP_ASSIGN(auto appended, log_.append(draft, head_, options_.signer));
        if (appended.won) {
            head_ = appended.entry;
            if (head_->commit.manifest) manifest_ = *head_->commit.manifest;
            needs_reconcile_ = false;
            return std::move(appended.entry);
        }
        const Commit& other = appended.entry.commit;
        if (other.epoch > epoch_ && other.owner != owner_) {
            return std::unexpected(fenced(appended.entry));
        }
        if (other.makes_state()) {
            return fail(ErrorKind::kConflict,
                        fmt::format("commit {} of {} was made meanwhile; publish again", other.seq,
                                    shown(log_.where().url)));
        }
        head_ = std::move(appended.entry);
        if (head_->commit.manifest) manifest_ = *head_->commit.manifest;
    }
    return fail(ErrorKind::kConflict,
                fmt::format("others keep writing to {}; stop them first", shown(log_.where().url)));
}

Result<StepDraft> RunWriter::draft_step(std::uint64_t step, const DiffReport& diff,
                                        bool has_delta) const {
    StepDraft draft;
    if (head_ && head_->commit.state.seq != 0) draft.before = head_->commit.state;
    const auto& before = draft.before;
    draft.report.step = step;
    draft.report.state = diff.result;
    draft.report.total_elements = diff.total_elements;
    draft.report.changed_elements = diff.changed_elements;
    if (before && before->step == step && before->digest == diff.result) {
        draft.report.seq = before->seq;
        draft.report.epoch = epoch_;
        draft.report.kind = "present";
        draft.present = true;
        return draft;
    }
    if (has_delta && (!before || before->digest != diff.base)) {
        return fail(ErrorKind::kConflict,
                    fmt::format("{} is not at the state that step {} was made from; publish again",
                                shown(log_.where().url), step));
    }
    draft.commit = this->draft(has_delta ? CommitKind::kDelta : CommitKind::kAnchor);
    draft.commit.total_elements = diff.total_elements;
    draft.commit.changed_elements = diff.changed_elements;
    if (has_delta) draft.commit.base = diff.base;
    if (before && step <= before->step) {
        // Training went back: replicas must be able to tell this history from the one left behind.
        draft.commit.rewind_from = before->step;
        draft.commit.epoch = epoch_ + 1;
        draft.report.rewound = true;
    }
    return draft;
}

Result<PublishReport> RunWriter::place_step(StepDraft draft, std::optional<AnchorEntry> anchor) {
    const Stopwatch timer;
    PublishReport report = std::move(draft.report);
    const auto place = [&](Commit& placed, std::uint64_t seq) {
        const StateName last = draft.before.value_or(StateName{});
        placed.state = {seq,
                        report.step,
                        report.state,
                        anchor ? last.chain_id + 1 : last.chain_id,
                        last.cumulative_delta_bytes + report.delta_bytes,
                        last.state_index + 1};
        if (!anchor) return;
        anchor->state = placed.state;
        placed.manifest = manifest_;
        add_anchor(*placed.manifest, *anchor);
        thin(*placed.manifest);
        placed.anchor_seq = seq;
    };
    if (anchor) {
        draft.commit.schema = anchor->schema;
        report.anchor_bytes = anchor->bytes();
        report.anchored = true;
    }
    WISP_ASSIGN(const LogEntry entry, append_beside(std::move(draft.commit), place));
    if (entry.commit.epoch != epoch_) {
        epoch_ = entry.commit.epoch;
        (void)keep_owner();
    }
    report.commit_seconds = timer.seconds();
    report.seq = entry.commit.seq;
    report.epoch = entry.commit.epoch;
    report.kind = name_of(entry.commit.kind);
    return report;
}

Result<PublishReport> RunWriter::commit(PreparedStep& step) {
    if (!step.coded) WISP_TRY(code(step));
    const Stopwatch upload_timer;
    const bool has_delta = !step.delta.path().empty();
    WISP_ASSIGN(StepDraft draft, draft_step(step.step, step.diff, has_delta));
    draft.report.diff_seconds = step.seconds;
    if (draft.present) return draft.report;
    const std::uint64_t epoch = draft.commit.epoch;
    std::optional<AnchorEntry> anchor;
    if (!has_delta) {
        WISP_ASSIGN(anchor, upload_anchor(*step.whole(), step.step, epoch));
    } else if (step.diff.changed_elements > 0) {
        const auto name_key = [&](std::string_view hash, PartNumber part) {
            return delta_key({step.step, epoch, hash, part});
        };
        WISP_ASSIGN(draft.commit.delta, uploader_.upload(step.delta.path(), "", name_key));
        draft.report.delta_bytes = draft.commit.delta->bytes();
    }
    const UploadCounts counts = uploader_.take_counts();
    draft.report.uploaded_bytes = counts.uploaded_bytes;
    draft.report.reused_bytes = counts.reused_bytes;
    draft.report.upload_seconds = upload_timer.seconds();
    const std::optional<StoredFile> delta = draft.commit.delta;
    WISP_ASSIGN(PublishReport report, place_step(std::move(draft), std::move(anchor)));
    if (counts.reused_bytes > 0 && delta) {
        if (auto confirmed = uploader_.confirm(*delta, step.delta.path()); !confirmed) {
            // Committed all the same: the next step must stand on it.
            needs_reconcile_ = true;
            return std::unexpected(std::move(confirmed).error());
        }
    }
    return report;
}

Result<void> RunWriter::heartbeat() {
    if (needs_reconcile_) WISP_TRY(reconcile());
    if (!head_) return {};
    Commit commit = draft(CommitKind::kHeartbeat);
    WISP_TRY(append_beside(std::move(commit), [](Commit&, std::uint64_t) {}));
    const std::lock_guard lock(baseline_mutex_);
    return note_head();
}

Result<void> RunWriter::stand_on_head() {
    if (!head_ || behind_ || at_.state_seq != head_->commit.state.seq) return reconcile();
    return load_manifest();
}

bool RunWriter::is_head(const PreparedStep& step) const {
    return head_ && step.coded && head_->commit.state.digest == step.diff.result &&
           head_->commit.state.step == step.step;
}

Result<void> RunWriter::note_head() {
    // A baseline that a stale reading left behind has not got the head's state: it stays where it
    // is, and the next step is published whole or after reconciling.
    if (at_.state_seq != head_->commit.state.seq) return {};
    at_ = record_at(at_, *head_);
    return baseline_.save(at_);
}

}  // namespace wisp
