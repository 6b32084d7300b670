#include "publish/step_publisher.hpp"

#include <fmt/format.h>

#include <mutex>
#include <system_error>

#include "base/file.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "base/without_throwing.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "follow/replica_updater.hpp"
#include "publish/locked_replica.hpp"
#include "wisp/follower.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// One step may be on its way to the bucket while the next is prepared on another thread.
Progress one_at_a_time(Progress told) {
    if (!told) return {};
    return [told = std::move(told), mutex = std::make_shared<std::mutex>()](
               std::string_view phase, std::uint64_t done, std::uint64_t total) {
        const std::scoped_lock lock(*mutex);
        told(phase, done, total);
    };
}

}  // namespace

Result<std::unique_ptr<StepPublisher>> StepPublisher::open(const Location& run, Replica& baseline,
                                                           const PublishOptions& given) {
    PublishOptions options = given;
    options.progress = one_at_a_time(given.progress);
    WISP_ASSIGN(CommitLog log, CommitLog::open(run, options.run));
    WISP_ASSIGN(auto writer, RunWriter::open(std::move(log), baseline.scratch(), options));
    std::unique_ptr<StepPublisher> steps(new StepPublisher(std::move(writer), baseline, options));
    WISP_TRY(steps->follow_head());
    return steps;
}

Result<void> StepPublisher::reconcile() {
    WISP_TRY(writer_->look());
    return follow_head();
}

Result<void> StepPublisher::stand_on_head() {
    if (!behind_ && at_.state_seq == head().state.seq) return {};
    return follow_head();
}

bool StepPublisher::is_head(const PreparedStep& step) const {
    return step.coded && head().state.digest == step.diff.result && head().state.step == step.step;
}

Result<void> StepPublisher::follow_head() {
    FollowOptions follow;
    follow.run = options_.run;
    follow.threads = options_.threads;
    follow.parallel_fetches = options_.parallel_uploads;
    follow.base = options_.public_base;
    follow.transfers = options_.progress;
    // Steps may be prepared meanwhile: the lock is held while the baseline moves, not while
    // fetching.
    LockedReplica locked(baseline_, baseline_mutex_, behind_);
    WISP_ASSIGN(Follower follower, Follower::open(writer_->log().where(), locked, follow));
    auto report = follower.catch_up();
    if (!report && report.error().kind == ErrorKind::kGap) {
        // Nothing can be rebuilt from what is left in the bucket: the next step is a whole state.
        WISP_TRY(locked.discard());
    } else if (!report) {
        return std::unexpected(std::move(report).error());
    }
    {
        const std::lock_guard lock(baseline_mutex_);
        at_ = follower.at();
        behind_ = false;
    }
    // Somebody may have written since the head was read.
    if (at_.seq > head().seq) WISP_TRY(writer_->look());
    if (at_.state_seq != head().state.seq && !writer_->log().counts(writer_->head())) {
        return fail(ErrorKind::kDenied,
                    fmt::format("the newest commits of {} have lapsed with their certificate, so "
                                "nobody can follow them; have the root certify the trainer's key "
                                "again, and open the run again",
                                shown(writer_->log().where().url)));
    }
    writer_->set_needs_reconcile(false);
    return {};
}

Result<PublishReport> StepPublisher::commit(PreparedStep& step) {
    if (!step.coded) WISP_TRY(code(step));
    const Stopwatch upload_timer;
    const bool has_delta = !step.delta.path().empty();
    WISP_ASSIGN(StepDraft draft, writer_->draft_step(step.step, step.diff, has_delta));
    draft.report.diff_seconds = step.seconds;
    if (draft.report.present) return draft.report;
    const std::uint64_t epoch = draft.commit.epoch;
    std::optional<AnchorEntry> anchor;
    if (!has_delta) {
        WISP_ASSIGN(anchor, upload_anchor(*step.whole(), step.step, epoch));
    } else if (step.diff.changed_elements > 0) {
        WISP_ASSIGN(draft.commit.delta,
                    writer_->uploader().upload(step.delta.path(), "", delta_key, step.step, epoch));
        draft.report.delta_bytes = draft.commit.delta->bytes();
    }
    const UploadCounts counts = writer_->uploader().take_counts();
    draft.report.uploaded_bytes = counts.uploaded_bytes;
    draft.report.reused_bytes = counts.reused_bytes;
    draft.report.upload_seconds = upload_timer.seconds();
    const std::optional<StoredFile> delta = draft.commit.delta;
    WISP_ASSIGN(PublishReport report, writer_->place_step(std::move(draft), std::move(anchor)));
    if (counts.reused_bytes > 0 && delta) {
        if (auto confirmed = writer_->uploader().confirm(*delta, step.delta.path()); !confirmed) {
            // Committed all the same: the next step must stand on it.
            writer_->set_needs_reconcile(true);
            return std::unexpected(std::move(confirmed).error());
        }
    }
    return report;
}

Result<void> StepPublisher::take_over_whole(const PreparedStep& step, const ReplicaRecord& after) {
    const fs::path folder = baseline_.scratch() / "incoming";
    std::error_code error;
    fs::remove_all(folder, error);
    fs::create_directories(folder, error);
    if (step.opened) {
        fs::rename(step.written.path(), folder / "model.safetensors", error);
        if (error) return std::unexpected(file_error("move", step.written.path(), error.value()));
    } else if (const auto* checkpoint = dynamic_cast<const Checkpoint*>(step.given)) {
        WISP_ASSIGN(const auto files, files_of(*checkpoint));
        WISP_TRY(copy_files(files, folder));
    } else {
        WISP_TRY(write_weights(*step.given, folder / "model.safetensors", options_.metadata));
    }
    return baseline_.adopt(folder, after);
}

void StepPublisher::advance(const PreparedStep& step, PublishReport& report) {
    const Stopwatch timer;
    if (report.present) return;
    const ReplicaRecord after = record_at(at_, writer_->head());
    const auto move = [&]() -> Result<void> {
        if (step.delta.path().empty()) return take_over_whole(step, after);
        if (step.diff.changed_elements == 0) return baseline_.save(after);
        if (step.changes.complete()) {
            auto moved = baseline_.overwrite(step.changes.blocks(), after);
            if (moved || moved.error().kind != ErrorKind::kUnsupported) return moved;
        }
        WISP_TRY(baseline_.apply({step.delta.path()}, after));
        return {};
    };
    // Committed is committed: a baseline that cannot follow is rebuilt before the next step.
    if (without_throwing(move)) {
        at_ = after;
    } else {
        behind_ = true;
        writer_->set_needs_reconcile(true);
    }
    report.baseline_seconds = timer.seconds();
}

Result<void> StepPublisher::publish_anchor(const Weights& source, PublishReport& report) {
    WISP_ASSIGN(AnchorEntry anchor, upload_anchor(source, head().state.step, writer_->epoch()));
    const UploadCounts counts = writer_->uploader().take_counts();
    report.uploaded_bytes += counts.uploaded_bytes;
    report.reused_bytes += counts.reused_bytes;
    const std::uint64_t bytes = anchor.bytes();
    WISP_TRY(writer_->place_anchor(std::move(anchor)));
    WISP_TRY(note_head());
    report.anchored = true;
    report.anchor_bytes = bytes;
    return {};
}

void StepPublisher::anchor_if_due(const Weights* source, PublishReport& report) {
    if (source == nullptr) source = baseline_.weights();
    if (source == nullptr || report.present || writer_->needs_reconcile()) return;
    if (!writer_->anchor_due()) return;
    // The step stands whatever becomes of its anchor. One that was fenced learns it again, for
    // good, at its next commit.
    if (auto anchored = publish_anchor(*source, report); !anchored) {
        report.anchor_failure = std::move(anchored).error();
    }
}

Result<void> StepPublisher::heartbeat() {
    if (writer_->needs_reconcile()) WISP_TRY(reconcile());
    WISP_TRY(writer_->heartbeat());
    return note_head();
}

Result<void> StepPublisher::note_head() {
    const std::lock_guard lock(baseline_mutex_);
    // A baseline that a stale reading left behind has not got the head's state: it stays where it
    // is, and the next step is published whole or after reconciling.
    if (at_.state_seq != head().state.seq) return {};
    at_ = record_at(at_, writer_->head());
    return baseline_.save(at_);
}

}  // namespace wisp
