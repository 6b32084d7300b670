#include "publish/sharded/shard_committer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/file.hpp"
#include "base/owned_file.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/replica_updater.hpp"
#include "log/run_keys.hpp"

namespace wisp {
namespace fs = std::filesystem;

ShardCommitter::ShardCommitter(ScratchFolder scratch, std::unique_ptr<RunWriter> writer)
    : scratch_(std::move(scratch)), writer_(std::move(writer)) {
    stand_on_head();
}

Result<std::unique_ptr<ShardCommitter>> ShardCommitter::open(const Location& run,
                                                             const fs::path& scratch,
                                                             const WriterOptions& options) {
    WISP_ASSIGN(CommitLog log, CommitLog::open(run, options.run));
    WISP_ASSIGN(ScratchFolder folder, ScratchFolder::open(scratch));
    WISP_ASSIGN(auto writer, RunWriter::open(std::move(log), folder.path(), options));
    return std::unique_ptr<ShardCommitter>(
        new ShardCommitter(std::move(folder), std::move(writer)));
}

void ShardCommitter::stand_on_head() {
    at_ = record_at(at_, writer_->head());
    writer_->set_needs_reconcile(false);
}

Result<void> ShardCommitter::reconcile() {
    WISP_TRY(writer_->look());
    stand_on_head();
    return {};
}

Result<void> ShardCommitter::heartbeat() {
    if (writer_->needs_reconcile()) WISP_TRY(reconcile());
    WISP_TRY(writer_->heartbeat());
    stand_on_head();
    return {};
}

Result<ShardCall> ShardCommitter::call(const Schema& schema, std::uint64_t step, bool whole) {
    if (writer_->needs_reconcile()) WISP_TRY(reconcile());
    landing_.reset();
    ShardCall call;
    call.codec = writer_->log().record().codec;
    call.step = step;
    call.epoch = writer_->epoch();
    const Commit& head = writer_->head().commit;
    const bool has_state = head.state.seq != 0;
    if (has_state && step <= head.state.step) ++call.epoch;
    if (has_state && !whole && head.schema == schema.digest()) {
        // The same step once more is not a rewind unless its weights differ: the draft decides.
        call.base = head.state.digest;
    } else {
        call.part = ShardPart::kWhole;
    }
    return call;
}

Result<void> ShardCommitter::require_base(const CombinedShards& gathered,
                                          const ShardCall& call) const {
    if (gathered.state == call.base) return {};
    std::string ranks;
    for (std::size_t rank = 0; rank < std::min(expected_.size(), gathered.manifests.size());
         ++rank) {
        const ShardManifest& manifest = gathered.manifests[rank];
        const Expected& expected = expected_[rank];
        if (manifest.spans == expected.spans && manifest.state != expected.state) {
            ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
        }
    }
    return fail(ErrorKind::kWrongBase,
                fmt::format("the blocks that the ranks hold are not the state that step {} stands "
                            "on{}; take them from the bucket again",
                            call.step,
                            ranks.empty() ? "; which rank's cannot be told"
                                          : ": wrong are those of rank " + ranks));
}

Result<StoredFile> ShardCommitter::upload_interleaved(const InterleavedHead& head,
                                                      const ShardCall& call, std::string name) {
    const OwnedFile file(writer_->new_file("interleaved"));
    {
        WISP_ASSIGN(PendingFile pending, PendingFile::create(file.path()));
        WISP_TRY(pending.append(head.object));
        WISP_TRY(pending.commit_unsynced());
    }
    const auto name_key = call.part == ShardPart::kDelta ? delta_segment_key : anchor_segment_key;
    WISP_ASSIGN(StoredFile stored, writer_->uploader().upload(file.path(), std::move(name),
                                                              name_key, call.step, call.epoch));
    stored.interleaved = true;
    stored.parts.insert(stored.parts.end(), head.parts.begin(), head.parts.end());
    return stored;
}

Result<AnchorEntry> ShardCommitter::upload_whole(const CombinedShards& gathered,
                                                 const Schema& schema, const ShardCall& call) {
    AnchorEntry anchor;
    anchor.schema = schema.digest();
    WISP_ASSIGN(StoredFile file,
                upload_interleaved(interleave_whole(gathered, schema, writer_->options().metadata),
                                   call, "model.safetensors"));
    anchor.files.push_back(std::move(file));
    WISP_TRY(writer_->upload_side_files(call.step, call.epoch, anchor));
    return anchor;
}

void ShardCommitter::take_counts(const CombinedShards& gathered, PublishReport& report) {
    const UploadCounts counts = writer_->uploader().take_counts();
    report.uploaded_bytes = counts.uploaded_bytes + gathered.part_bytes;
    report.reused_bytes = counts.reused_bytes;
}

void ShardCommitter::remember(const CombinedShards& gathered, const ShardCall& call) {
    expected_.clear();
    for (const ShardManifest& manifest : gathered.manifests) {
        StateDigest state = manifest.state;
        if (call.part == ShardPart::kDelta)
            state += manifest.touched_after - manifest.touched_before;
        expected_.push_back({manifest.spans, state});
    }
}

Result<PublishReport> ShardCommitter::commit_shards(const ShardCall& call, const Schema& schema,
                                                    const std::vector<Bytes>& manifests) {
    const Stopwatch timer;
    WISP_ASSIGN(const CombinedShards gathered, combine_shards(manifests, schema, call));
    const bool has_delta = call.part == ShardPart::kDelta;
    DiffReport diff;
    diff.total_elements = diff.changed_elements = schema.total_elements();
    diff.result = gathered.state;
    std::optional<InterleavedHead> interleaved;
    if (has_delta) {
        WISP_TRY(require_base(gathered, call));
        DeltaFacts facts;
        facts.codec = call.codec;
        facts.step = call.step;
        facts.total_elements = schema.total_elements();
        facts.base = call.base;
        facts.touched = gathered.touched_before;
        facts.result = call.base - gathered.touched_before + gathered.touched_after;
        facts.schema_digest = schema.digest();
        WISP_ASSIGN(interleaved, interleave_delta(gathered, schema, facts));
        diff.base = facts.base;
        diff.result = facts.result;
        diff.changed_elements = facts.changed_elements;
    }
    WISP_ASSIGN(StepDraft draft, writer_->draft_step(call.step, diff, has_delta));
    if (draft.report.present) return draft.report;
    if (draft.commit.epoch != call.epoch) {
        return fail(ErrorKind::kConflict,
                    fmt::format("{} moved on while step {} was being sent; publish again",
                                shown(writer_->log().where().url), call.step));
    }
    std::optional<AnchorEntry> anchor;
    if (!has_delta) {
        WISP_ASSIGN(anchor, upload_whole(gathered, schema, call));
    } else if (diff.changed_elements > 0) {
        WISP_ASSIGN(draft.commit.delta, upload_interleaved(*interleaved, call, ""));
        draft.report.delta_bytes = draft.commit.delta->bytes();
    }
    take_counts(gathered, draft.report);
    draft.report.upload_seconds = timer.seconds();
    landing_ = diff.result;
    auto report = writer_->place_step(std::move(draft), std::move(anchor));
    if (report || report.error().kind != ErrorKind::kUnavailable) landing_.reset();
    if (!report) return report;
    stand_on_head();
    remember(gathered, call);
    return report;
}

std::optional<ShardCall> ShardCommitter::anchor_call() const {
    const StateName& state = writer_->head().commit.state;
    if (writer_->needs_reconcile() || state.seq == 0 || !writer_->anchor_due()) return std::nullopt;
    return ShardCall{ShardPart::kAnchor, state.step, writer_->epoch(), state.digest,
                     writer_->log().record().codec};
}

Result<PublishReport> ShardCommitter::commit_anchor(const ShardCall& call, const Schema& schema,
                                                    const std::vector<Bytes>& manifests) {
    const Stopwatch timer;
    WISP_ASSIGN(const CombinedShards gathered, combine_shards(manifests, schema, call));
    WISP_TRY(require_base(gathered, call));
    if (anchor_call() != call) {
        return fail(ErrorKind::kConflict,
                    fmt::format("{} moved on while an anchor of step {} was being sent",
                                shown(writer_->log().where().url), call.step));
    }
    WISP_ASSIGN(AnchorEntry anchor, upload_whole(gathered, schema, call));
    PublishReport report;
    report.kind = CommitKind::kAnchor;
    report.step = call.step;
    report.epoch = call.epoch;
    report.state = call.base;
    take_counts(gathered, report);
    report.upload_seconds = timer.seconds();
    report.anchored = true;
    report.anchor_bytes = anchor.bytes();
    WISP_TRY(writer_->place_anchor(std::move(anchor)));
    stand_on_head();
    report.seq = writer_->head().commit.seq;
    return report;
}

}  // namespace wisp
