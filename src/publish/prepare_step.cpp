// How a step becomes a delta or a whole state, and how the baseline follows it.
#include <fmt/format.h>

#include <system_error>

#include "base/file.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "base/without_throwing.hpp"
#include "checkpoint/block_feed.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "delta/delta_writer.hpp"
#include "follow/replica_updater.hpp"
#include "publish/run_writer.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

// Beside what is always kept: one changed element in a hundred of bf16 is as much as this.
constexpr std::uint64_t kKeptShareOfWeights = 32;

}  // namespace

bool RunWriter::has_baseline(const Schema& schema) const {
    const Weights* held = baseline_.weights();
    return held != nullptr && head_ && at_.state_seq == head_->commit.state.seq &&
           at_.state_seq != 0 && held->schema().digest() == schema.digest();
}

DiffOptions RunWriter::diff_options(std::uint64_t step) const {
    DiffOptions options;
    options.codec = options_.codec;
    options.threads = options_.threads;
    options.step = step;
    options.progress = options_.progress;
    return options;
}

Result<PreparedStep> RunWriter::open_step(const Schema& schema, std::uint64_t step) {
    if (behind_) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("{} is being taken from the run anew; the next step brings what "
                                "step {} holds",
                                shown(baseline_.label()), step));
    }
    const Weights* held = baseline_.weights();
    if (held == nullptr || at_.state_seq == 0 || held->schema().digest() != schema.digest()) {
        return fail(ErrorKind::kWrongBase,
                    fmt::format("{} holds no state of this schema", shown(baseline_.label())));
    }
    PreparedStep opened;
    opened.step = step;
    opened.delta = OwnedFile(new_file("delta"));
    opened.changes =
        ChangeBuffer(options_.change_buffer_bytes + schema.total_bytes() / kKeptShareOfWeights);
    return opened;
}

Result<void> RunWriter::require_state(const StateDigest& read) const {
    if (read == at_.state) return {};
    return fail(ErrorKind::kWrongBase,
                fmt::format("{} is not at the state it says", shown(baseline_.label())));
}

Result<PreparedStep> RunWriter::prepare_changes(ChangeStream& changes, std::uint64_t step) {
    const Stopwatch timer;
    WISP_ASSIGN(PreparedStep prepared, open_step(changes.schema(), step));
    WISP_ASSIGN(prepared.diff,
                write_changes(*baseline_.weights(), at_.state, changes, prepared.delta.path(),
                              diff_options(step), Keep::kForNow, &prepared.changes));
    prepared.seconds = timer.seconds();
    return prepared;
}

Result<PreparedStep> RunWriter::prepare_delta(WeightStream& weights, std::uint64_t step) {
    const Stopwatch timer;
    WISP_ASSIGN(PreparedStep prepared, open_step(weights.schema(), step));
    WISP_ASSIGN(prepared.diff, diff_stream(*baseline_.weights(), weights, prepared.delta.path(),
                                           diff_options(step), Keep::kForNow, &prepared.changes));
    WISP_TRY(require_state(prepared.diff.base));
    dense_ = !prepared.changes.complete();
    prepared.seconds = timer.seconds();
    return prepared;
}

Result<PreparedStep> RunWriter::prepare_found(WeightStream& weights, std::uint64_t step) {
    // Steps resemble each other: after a dense one, keeping the changes is not even tried.
    if (dense_) return prepare_delta(weights, step);
    const Stopwatch timer;
    WISP_ASSIGN(PreparedStep prepared, open_step(weights.schema(), step));
    WISP_ASSIGN(const FoundChanges found,
                find_changes(*baseline_.weights(), weights, diff_options(step), prepared.changes));
    if (!prepared.changes.complete()) return prepare_delta(weights, step);
    WISP_TRY(require_state(found.base));
    prepared.coded = false;
    prepared.diff.base = found.base;
    prepared.diff.changed_elements = found.changed_elements;
    prepared.diff.total_elements = weights.schema().total_elements();
    prepared.seconds = timer.seconds();
    return prepared;
}

Result<void> RunWriter::code(PreparedStep& step) {
    const Stopwatch timer;
    if (step.diff.base != at_.state) {
        return fail(ErrorKind::kConflict,
                    fmt::format("{} is not at the state that step {} was made from; publish again",
                                shown(baseline_.label()), step.step));
    }
    WISP_ASSIGN(step.diff,
                write_buffered(*baseline_.weights(), at_.state, step.changes.blocks(),
                               step.delta.path(), diff_options(step.step), Keep::kForNow));
    step.coded = true;
    step.seconds += timer.seconds();
    return {};
}

Result<PreparedStep> RunWriter::rebase(const PreparedStep& onto, PreparedStep& waiting) {
    const Stopwatch timer;
    const Weights& base = *baseline_.weights();
    WISP_ASSIGN(PreparedStep rebased, open_step(base.schema(), waiting.step));
    if (onto.changes.complete() && waiting.changes.complete()) {
        WISP_ASSIGN(rebased.diff.changed_elements,
                    rebase_buffered(base, onto.changes.blocks(), waiting.changes.blocks(),
                                    options_.threads, rebased.changes));
        rebased.coded = false;
        rebased.diff.base = onto.diff.result;
        rebased.diff.total_elements = waiting.diff.total_elements;
    }
    if (rebased.coded || !rebased.changes.complete()) {
        if (!waiting.coded) WISP_TRY(code(waiting));
        WISP_ASSIGN(rebased, open_step(base.schema(), waiting.step));
        DiffOptions options = diff_options(waiting.step);
        options.progress = {};
        WISP_ASSIGN(rebased.diff,
                    rebase_delta(base, at_.state, onto.delta.path(), waiting.delta.path(),
                                 rebased.delta.path(), options, &rebased.changes));
    }
    rebased.seconds = waiting.seconds + timer.seconds();
    return rebased;
}

Result<PreparedStep> RunWriter::prepare(WeightStream& weights, std::uint64_t step) {
    if (needs_reconcile_) WISP_TRY(reconcile());
    if (has_baseline(weights.schema())) {
        auto prepared = prepare_delta(weights, step);
        if (prepared || prepared.error().kind != ErrorKind::kWrongBase) return prepared;
        // The baseline is damaged: fetch its state again.
        WISP_TRY(baseline_.discard());
        WISP_TRY(reconcile());
        if (has_baseline(weights.schema())) return prepare_delta(weights, step);
    }
    return prepare_whole(weights, step);
}

Result<PreparedStep> RunWriter::prepare_whole(WeightStream& weights, std::uint64_t step) {
    PreparedStep whole;
    whole.step = step;
    const Stopwatch timer;
    whole.given = weights.whole();
    if (whole.given != nullptr) {
        WISP_ASSIGN(whole.diff.result,
                    digest_of(*whole.given, options_.threads, options_.progress));
    } else {
        whole.written = OwnedFile(new_file("whole"));
        WISP_ASSIGN(whole.diff.result,
                    write_stream(weights, whole.written.path(), options_.metadata, options_.threads,
                                 options_.progress));
        WISP_ASSIGN(Checkpoint opened, Checkpoint::open(whole.written.path()));
        whole.opened.emplace(std::move(opened));
    }
    whole.diff.total_elements = weights.schema().total_elements();
    whole.diff.changed_elements = whole.diff.total_elements;
    whole.seconds = timer.seconds();
    return whole;
}

Result<void> RunWriter::take_over_whole(const PreparedStep& step, const ReplicaRecord& after) {
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

void RunWriter::advance(const PreparedStep& step, PublishReport& report) {
    const Stopwatch timer;
    if (report.kind == "present") return;
    const ReplicaRecord after = record_at(at_, *head_);
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
        needs_reconcile_ = behind_ = true;
    }
    report.baseline_seconds = timer.seconds();
}

}  // namespace wisp
