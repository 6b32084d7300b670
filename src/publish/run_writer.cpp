#include "publish/run_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "base/file.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/file_name.hpp"
#include "follow/fetch_plan.hpp"
#include "log/lineage.hpp"
#include "log/manifest.hpp"
#include "log/slot_races.hpp"
#include "wisp/result.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kSchemaDigits = 32;
constexpr Milliseconds kSignedLife(24 * 3'600'000);

std::string this_writer() {
    char host[256] = "unknown";
    (void)::gethostname(host, sizeof(host) - 1);
    return fmt::format("{}:{}", printable(host), ::getpid());
}

}  // namespace

RunWriter::RunWriter(CommitLog log, fs::path folder, const WriterOptions& options)
    : log_(std::move(log)),
      folder_(std::move(folder)),
      options_(options),
      uploader_(log_.where(), options.parallel_uploads,
                std::max<std::uint64_t>(1, options.part_bytes), options.progress),
      writer_(this_writer()) {}

Result<std::unique_ptr<RunWriter>> RunWriter::open(CommitLog log, fs::path folder,
                                                   const WriterOptions& options) {
    std::unique_ptr<RunWriter> writer(new RunWriter(std::move(log), std::move(folder), options));
    WISP_TRY(writer->clear_outgoing());
    WISP_TRY(writer->begin_epoch());
    WISP_TRY(writer->load_manifest());
    return writer;
}

Result<void> RunWriter::clear_outgoing() const {
    std::error_code error;
    const fs::path outgoing = folder_ / "outgoing";
    fs::remove_all(outgoing, error);
    fs::create_directories(outgoing, error);
    if (error) return std::unexpected(file_error("create", outgoing, error.value()));
    return {};
}

fs::path RunWriter::new_file(std::string_view kind) {
    return folder_ / "outgoing" / fmt::format("{}-{}.safetensors", kind, files_made_++);
}

Result<void> RunWriter::look() {
    WISP_TRY(read_head());
    return load_manifest();
}

Result<void> RunWriter::read_head() {
    // What this writer stands on it has judged itself, or made: only what comes after is new.
    WISP_ASSIGN(const Slot next, log_.next(head_->commit.seq));
    if (next.kind == Slot::Kind::kAbsent) return {};
    WISP_ASSIGN(auto head, log_.head(head_->commit.seq));
    if (!head || head->commit.seq <= head_->commit.seq) return {};
    Lineage history(log_, *head);
    const bool given_up = head_->commit.seq < head->commit.floor;
    const auto found = given_up ? Result<bool>(true) : history.contains(head_->ref());
    if (!found && found.error().kind == ErrorKind::kGap) {
        // Retention may have taken the way away meanwhile; then there is a newer head that says so.
        WISP_ASSIGN(const auto newer, log_.head(head->commit.seq));
        if (newer && newer->commit.seq > head->commit.seq) return read_head();
    }
    WISP_ASSIGN(const bool ours, found);
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

Result<void> RunWriter::load_manifest() {
    manifest_ = {};
    for (;;) {
        auto manifest = log_.manifest_of(*head_);
        if (manifest) {
            manifest_ = std::move(*manifest);
            return {};
        }
        // A writer that slept since it read the head may find its manifest buried; the newest one
        // is there.
        const std::uint64_t seq = head_->commit.seq;
        if (manifest.error().kind != ErrorKind::kGap)
            return std::unexpected(std::move(manifest).error());
        WISP_TRY(read_head());
        if (head_->commit.seq == seq) return std::unexpected(std::move(manifest).error());
    }
}

std::uint64_t RunWriter::next_step() const {
    return head_->commit.state.seq != 0 ? head_->commit.state.step + 1 : 0;
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

void RunWriter::stand_on(LogEntry head) {
    head_ = std::move(head);
    if (head_->commit.manifest) manifest_ = *head_->commit.manifest;
}

/// Takes the next slot, past commits of maintenance that get in first; `place` fills in what
/// depends on the head, again for each try.
Result<LogEntry> RunWriter::append_beside(
    Commit commit, const std::function<void(Commit&, std::uint64_t seq)>& place) {
    for (int race = 0; race < kSlotRaces; ++race) {
        commit.floor = head_->commit.floor;
        needs_reconcile_ = true;
        const auto draft = [&](std::uint64_t seq) {
            place(commit, seq);
            return commit;
        };
        WISP_ASSIGN(auto appended, log_.append(draft, head_, options_.signer));
        if (appended.won) {
            stand_on(appended.entry);
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
        stand_on(std::move(appended.entry));
    }
    return std::unexpected(lost_slot_races(log_.where()));
}

Result<StepDraft> RunWriter::draft_step(std::uint64_t step, const DiffReport& diff,
                                        bool has_delta) const {
    StepDraft draft;
    if (head_->commit.state.seq != 0) draft.before = head_->commit.state;
    const auto& before = draft.before;
    draft.report.step = step;
    draft.report.state = diff.result;
    draft.report.total_elements = diff.total_elements;
    draft.report.changed_elements = diff.changed_elements;
    if (before && before->step == step && before->digest == diff.result) {
        draft.report.seq = before->seq;
        draft.report.epoch = epoch_;
        draft.report.present = true;
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

void RunWriter::list_anchor(Commit& placed, const AnchorEntry& anchor) const {
    placed.manifest = manifest_;
    add_anchor(*placed.manifest, anchor);
    thin(*placed.manifest);
    placed.anchor_seq = anchor.state.seq;
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
        list_anchor(placed, *anchor);
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
    report.kind = entry.commit.kind;
    return report;
}

Result<void> RunWriter::place_anchor(AnchorEntry anchor) {
    anchor.state = head_->commit.state;
    WISP_TRY(append_beside(draft(CommitKind::kAnchor),
                           [&](Commit& placed, std::uint64_t) { list_anchor(placed, anchor); }));
    return {};
}

Result<void> RunWriter::heartbeat() {
    WISP_TRY(append_beside(draft(CommitKind::kHeartbeat), [](Commit&, std::uint64_t) {}));
    return {};
}

bool RunWriter::anchor_due() const {
    if (manifest_.anchors.empty()) return true;
    const AnchorEntry& newest = manifest_.anchors.back();
    const StateName& now = head_->commit.state;
    if (newest.state.seq == now.seq) return false;
    if (head_->commit.rewind_from && head_->commit.makes_state()) return true;
    if (options_.anchor_every > 0)
        return now.state_index - newest.state.state_index >= options_.anchor_every;
    FetchPlanRequest joiner;
    joiner.target = now;
    joiner.floor = head_->commit.floor;
    joiner.base = newest.base;
    const auto plan = plan_fetch(manifest_, joiner);
    if (!plan || !plan->anchor) return true;
    // An anchor costs its own bytes once; it is worth them when every joiner would read as much.
    return plan->bytes - plan->anchor->bytes() > newest.bytes();
}

Result<void> RunWriter::upload_side_files(std::uint64_t step, std::uint64_t epoch,
                                          AnchorEntry& anchor) {
    for (const fs::path& side : options_.side_files) {
        const std::string name = side.filename().string();
        if (!is_file_name(name)) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("the side file {} has a name that not every machine can take "
                                    "over",
                                    shown(name)));
        }
        WISP_ASSIGN(StoredFile stored, uploader_.upload(side, name, side_file_key, step, epoch));
        anchor.files.push_back(std::move(stored));
    }
    return {};
}

}  // namespace wisp
