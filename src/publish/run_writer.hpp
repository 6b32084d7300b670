// What publishing consists of, in pieces that the plain and the asynchronous publisher put
// together: prepare (diff against the baseline), commit (upload, then take the slot), advance (the
// baseline), anchor. doc/protocol.md section 6.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "log/lineage.hpp"
#include "publish/prepared_step.hpp"
#include "publish/step_draft.hpp"
#include "publish/uploader.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp {

class RunWriter {
  public:
    virtual ~RunWriter() = default;
    static Result<std::unique_ptr<RunWriter>> open(const Location& run, Replica& baseline,
                                                   const PublishOptions& options);

    /// Against the baseline, and looking at nothing else; the caller holds baseline_mutex().
    /// kWrongBase when it is not at the state it should be at, or has another schema.
    Result<PreparedStep> prepare_delta(WeightStream& weights, std::uint64_t step);
    /// As prepare_delta(), but done with the weights as soon as what changed is known: commit()
    /// codes it, against the baseline, which only commit() and advance() of this step may follow.
    Result<PreparedStep> prepare_found(WeightStream& weights, std::uint64_t step);
    /// The same, from what somebody else found to have changed.
    Result<PreparedStep> prepare_changes(ChangeStream& changes, std::uint64_t step);
    /// Brings the baseline to the head if need be; without one the step is a whole state.
    Result<PreparedStep> prepare(WeightStream& weights, std::uint64_t step);
    /// kConflict: the run moved on by a commit of this writer whose answer was lost; call
    /// reconcile(), and prepare again.
    Result<PublishReport> commit(PreparedStep& step);
    /// The baseline after commit(), under baseline_mutex(); what fails is mended by reconcile().
    void advance(const PreparedStep& step, PublishReport& report);
    /// Publishes an anchor of the baseline's state if one is due. `source` holds the same weights.
    void anchor_if_due(const Weights& source, PublishReport& report);
    /// Brings head and baseline to what the bucket says.
    Result<void> reconcile();
    /// `waiting`, made from the same state as `onto`, as it is after `onto`, which is committed.
    Result<PreparedStep> rebase(const PreparedStep& onto, PreparedStep& waiting);
    /// Reads the head alone, to learn what became of a commit whose answer was lost.
    Result<void> look();
    Result<void> load_manifest();  // of the head as it was read
    Result<void> heartbeat();
    /// Manifest and baseline to the head as look() has read it. The baseline is left alone if it is
    /// there already, so that what is being prepared against it stays good.
    Result<void> stand_on_head();
    bool is_head(const PreparedStep& step) const;     // as it was read last
    std::optional<Milliseconds> commit_life() const;  // until they are stale; nothing: for ever

    /// Whether an earlier attempt left open what the log holds, or the baseline could not follow.
    bool needs_reconcile() const { return needs_reconcile_; }
    void set_needs_reconcile(bool needs_reconcile) { needs_reconcile_ = needs_reconcile; }
    /// Guards what prepare_delta() reads against advance(); of use only with several threads.
    std::mutex& baseline_mutex() { return baseline_mutex_; }
    const ReplicaRecord& at() const { return at_; }
    const std::optional<LogEntry>& head() const { return head_; }
    std::uint64_t next_step() const;
    const std::string& run() const { return log_.run(); }
    Replica& baseline() { return baseline_; }
    std::filesystem::path new_file(std::string_view kind);

  protected:
    RunWriter(CommitLog log, Replica& baseline, const PublishOptions& options);
    Result<void> start();
    /// Brings baseline and manifest to the head that was read last.
    virtual Result<void> follow_head();
    Result<StepDraft> draft_step(std::uint64_t step, const DiffReport& diff, bool has_delta) const;
    /// Takes the slot. With an anchor the step is a whole state.
    Result<PublishReport> place_step(StepDraft draft, std::optional<AnchorEntry> anchor);
    Result<void> place_anchor(AnchorEntry anchor, PublishReport& report);
    Result<void> upload_side_files(std::uint64_t step, std::uint64_t epoch, AnchorEntry& anchor);
    bool anchor_due() const;
    const PublishOptions& options() const { return options_; }
    const Location& where() const { return log_.where(); }
    std::uint64_t epoch() const { return epoch_; }
    Uploader& uploader() { return uploader_; }

    ReplicaRecord at_;

  private:
    bool has_baseline(const Schema& schema) const;
    DiffOptions diff_options(std::uint64_t step) const;
    /// Still without changes. kWrongBase when the baseline is missing or of another schema.
    Result<PreparedStep> open_step(const Schema& schema, std::uint64_t step);
    /// kWrongBase unless the baseline, as it was read, is the state that it says.
    Result<void> require_state(const StateDigest& read) const;
    Result<void> code(PreparedStep& step);
    Result<PreparedStep> prepare_whole(WeightStream& weights, std::uint64_t step);
    Result<void> take_over_whole(const PreparedStep& step, const ReplicaRecord& after);
    Result<void> note_head();  // after a commit that made no state
    Result<void> begin_epoch();
    Error fenced(const LogEntry& by) const;
    Commit draft(CommitKind kind) const;
    Result<LogEntry> append_beside(Commit commit,
                                   const std::function<void(Commit&, std::uint64_t seq)>& place);
    Result<AnchorEntry> upload_anchor(const Weights& source, std::uint64_t step,
                                      std::uint64_t epoch);
    Result<std::optional<AnchorEntry>> upload_public_anchor(const Weights& source,
                                                            std::uint64_t step,
                                                            std::uint64_t epoch);
    Result<void> accept_epoch(const LogEntry& head);  // kFenced unless it is this writer's
    Result<void> keep_owner() const;
    Result<std::uint64_t> recall_owner();

    CommitLog log_;
    Replica& baseline_;
    PublishOptions options_;
    Uploader uploader_;
    std::optional<LogEntry> head_;
    Manifest manifest_;
    std::uint64_t epoch_ = 0;
    std::string owner_;
    std::string writer_;
    bool needs_reconcile_ = true;
    bool behind_ = false;  // the baseline is not at at_; guarded by baseline_mutex()
    bool dense_ = false;   // the last step changed too much to be kept
    std::atomic<std::uint64_t> files_made_ = 0;
    std::mutex baseline_mutex_;
};

}  // namespace wisp
