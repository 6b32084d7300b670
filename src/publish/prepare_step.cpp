// How weights become a step: a delta or a whole state.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/free_memory.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/block_feed.hpp"
#include "delta/diff_weights.hpp"
#include "publish/dense_step.hpp"
#include "publish/step_publisher.hpp"

namespace wisp {
namespace {

// Beside what is always kept: one changed element in a hundred of bf16 is as much as this.
constexpr std::uint64_t kKeptShareOfWeights = 24;
// Of the memory that is free: the trainer needs the rest.
constexpr std::uint64_t kCopiedShareOfMemory = 4;

/// Whether a list of so many changes is larger than one that is worth making.
bool is_dense(const Schema& schema, std::uint64_t changed_elements) {
    const std::uint64_t width =
        schema.total_bytes() / std::max<std::uint64_t>(schema.total_elements(), 1);
    return list_bytes(changed_elements, width) > longest_list_bytes(schema.total_bytes());
}

}  // namespace

std::uint64_t StepPublisher::kept_bytes(const Schema& schema) const {
    return options_.change_buffer_bytes + schema.total_bytes() / kKeptShareOfWeights;
}

bool StepPublisher::has_baseline(const Schema& schema) const {
    const Weights* held = baseline_.weights();
    return held != nullptr && at_.state_seq == head().state.seq && at_.state_seq != 0 &&
           held->schema().digest() == schema.digest();
}

DiffOptions StepPublisher::diff_options(const Schema& schema, std::uint64_t step) const {
    DiffOptions options;
    options.codec = writer_->log().record().codec;
    options.slices = slices_of(writer_->log().record(), schema.total_bytes());
    options.threads = options_.threads;
    options.step = step;
    options.progress = options_.progress;
    return options;
}

Result<PreparedStep> StepPublisher::open_step(const Schema& schema, std::uint64_t step) {
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
    opened.delta = OwnedFile(writer_->new_file("delta"));
    opened.changes = ChangeBuffer(kept_bytes(schema));
    return opened;
}

Result<void> StepPublisher::require_state(const StateDigest& read) const {
    if (read == at_.state) return {};
    return fail(ErrorKind::kWrongBase,
                fmt::format("{} is not at the state it says", shown(baseline_.label())));
}

Result<PreparedStep> StepPublisher::prepare_changes(ChangeStream& changes, std::uint64_t step) {
    const Stopwatch timer;
    WISP_ASSIGN(PreparedStep prepared, open_step(changes.schema(), step));
    WISP_ASSIGN(const auto written,
                take_changes(*baseline_.weights(), at_.state, changes, prepared.delta.path(),
                             diff_options(changes.schema(), step), prepared.changes));
    if (written) {
        prepared.diff = *written;
    } else {
        prepared.coded = false;
        prepared.diff.base = at_.state;
        prepared.diff.changed_elements = prepared.changes.changed_elements();
        prepared.diff.total_elements = changes.schema().total_elements();
    }
    prepared.seconds = timer.seconds();
    return prepared;
}

Result<PreparedStep> StepPublisher::prepare_delta(WeightStream& weights, std::uint64_t step) {
    const Stopwatch timer;
    WISP_ASSIGN(PreparedStep prepared, open_step(weights.schema(), step));
    WISP_ASSIGN(prepared.diff, diff_stream(*baseline_.weights(), weights, prepared.delta.path(),
                                           diff_options(weights.schema(), step), Keep::kForNow,
                                           &prepared.changes));
    WISP_TRY(require_state(prepared.diff.base));
    dense_ =
        !prepared.changes.complete() || is_dense(weights.schema(), prepared.diff.changed_elements);
    prepared.seconds = timer.seconds();
    return prepared;
}

Result<PreparedStep> StepPublisher::prepare_found(WeightStream& weights, std::uint64_t step) {
    // Steps resemble each other: after a dense one, listing the changes is not even tried.
    if (dense_) return prepare_copy(weights, step);
    const Stopwatch timer;
    const Schema& schema = weights.schema();
    WISP_ASSIGN(PreparedStep prepared, open_step(schema, step));
    prepared.changes =
        ChangeBuffer(std::min(kept_bytes(schema), longest_list_bytes(schema.total_bytes())));
    WISP_ASSIGN(
        const FoundChanges found,
        find_changes(*baseline_.weights(), weights, diff_options(schema, step), prepared.changes));
    if (!prepared.changes.complete()) return prepare_copy(weights, step);
    WISP_TRY(require_state(found.base));
    prepared.coded = false;
    prepared.diff.base = found.base;
    prepared.diff.changed_elements = found.changed_elements;
    prepared.diff.total_elements = schema.total_elements();
    prepared.seconds = timer.seconds();
    return prepared;
}

std::shared_ptr<OwnedWeights> StepPublisher::memory_for_copy(const Schema& schema) {
    {
        const std::lock_guard lock(spare_mutex_);
        const auto spare = std::exchange(spare_, nullptr);
        if (spare && spare->schema().digest() == schema.digest()) return spare;
    }
    if (schema.total_bytes() > free_memory_bytes() / kCopiedShareOfMemory) return nullptr;
    auto fresh = OwnedWeights::allocate(schema);
    return fresh ? std::move(*fresh) : nullptr;
}

Result<PreparedStep> StepPublisher::prepare_copy(WeightStream& weights, std::uint64_t step) {
    const Stopwatch timer;
    WISP_ASSIGN(PreparedStep prepared, open_step(weights.schema(), step));
    prepared.copy = memory_for_copy(weights.schema());
    if (!prepared.copy) return prepare_delta(weights, step);
    WISP_TRY(prepared.copy->read(weights, options_.threads, options_.progress));
    prepared.coded = false;
    prepared.diff.base = at_.state;
    prepared.diff.total_elements = weights.schema().total_elements();
    prepared.seconds = timer.seconds();
    return prepared;
}

Result<void> StepPublisher::code_copy(PreparedStep& step) {
    const Weights& base = *baseline_.weights();
    WholeStream stream(*step.copy);
    ChangeBuffer changes(kept_bytes(base.schema()));
    WISP_ASSIGN(const DiffReport diff,
                diff_stream(base, stream, step.delta.path(), diff_options(base.schema(), step.step),
                            Keep::kForNow, &changes));
    if (auto sound = require_state(diff.base); !sound) {
        // Others find this out while the trainer waits. Here the copy is at hand, and is compared
        // again once the baseline has been fetched.
        const std::lock_guard lock(baseline_mutex_);
        behind_ = true;
        WISP_TRY(baseline_.discard());
        return fail(ErrorKind::kConflict, sound.error().text + "; it is taken from the run anew");
    }
    step.diff = diff;
    step.changes = std::move(changes);
    dense_ = is_dense(base.schema(), diff.changed_elements);
    const std::lock_guard lock(spare_mutex_);
    spare_ = dense_ ? std::move(step.copy) : nullptr;
    step.copy.reset();
    return {};
}

Result<void> StepPublisher::code(PreparedStep& step) {
    const Stopwatch timer;
    if (step.diff.base != at_.state) {
        return fail(ErrorKind::kConflict,
                    fmt::format("{} is not at the state that step {} was made from; publish again",
                                shown(baseline_.label()), step.step));
    }
    if (step.copy) {
        WISP_TRY(code_copy(step));
    } else {
        const Weights& base = *baseline_.weights();
        WISP_ASSIGN(step.diff,
                    write_buffered(base, at_.state, step.changes, step.delta.path(),
                                   diff_options(base.schema(), step.step), Keep::kForNow));
    }
    step.coded = true;
    step.seconds += timer.seconds();
    return {};
}

Result<PreparedStep> StepPublisher::rebase(const PreparedStep& onto, PreparedStep& waiting) {
    const Stopwatch timer;
    const Weights& base = *baseline_.weights();
    WISP_ASSIGN(PreparedStep rebased, open_step(base.schema(), waiting.step));
    if (waiting.copy) {
        // It holds everything, and has not been compared with anything yet.
        rebased.copy = std::move(waiting.copy);
        rebased.coded = false;
        rebased.diff.base = onto.diff.result;
        rebased.diff.total_elements = waiting.diff.total_elements;
        rebased.seconds = waiting.seconds;
        return rebased;
    }
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
        DiffOptions options = diff_options(base.schema(), waiting.step);
        options.progress = {};
        WISP_ASSIGN(rebased.diff,
                    rebase_delta(base, at_.state, onto.delta.path(), waiting.delta.path(),
                                 rebased.delta.path(), options, &rebased.changes));
    }
    rebased.seconds = waiting.seconds + timer.seconds();
    return rebased;
}

Result<PreparedStep> StepPublisher::prepare(WeightStream& weights, std::uint64_t step) {
    if (writer_->needs_reconcile()) WISP_TRY(reconcile());
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

Result<PreparedStep> StepPublisher::prepare_whole(WeightStream& weights, std::uint64_t step) {
    PreparedStep whole;
    whole.step = step;
    const Stopwatch timer;
    whole.given = weights.whole();
    if (whole.given != nullptr) {
        WISP_ASSIGN(whole.diff.result,
                    digest_of(*whole.given, options_.threads, options_.progress));
    } else {
        whole.written = OwnedFile(writer_->new_file("whole"));
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

}  // namespace wisp
