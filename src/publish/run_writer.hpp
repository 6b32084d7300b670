// The writer of a run: its epoch, the objects it uploads and the slots it takes. It stands on
// the head of the log and knows nothing of weights. doc/protocol.md section 6.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "log/commit_log.hpp"
#include "publish/uploader.hpp"
#include "wisp/publisher.hpp"

namespace wisp {

/// A step on its way into the log: what is known before anything of it is uploaded.
struct StepDraft {
    Commit commit;
    std::optional<StateName> before;  // the state it follows; none on an empty run
    PublishReport report;
};

class RunWriter {
  public:
    /// Takes the run over. Who this writer is, it remembers in `folder`, where its outgoing files
    /// lie too.
    static Result<std::unique_ptr<RunWriter>> open(CommitLog log, std::filesystem::path folder,
                                                   const WriterOptions& options);

    /// Reads head and manifest, to learn what became of a commit whose answer was lost.
    Result<void> look();
    /// kConflict: the step was not made from the head's state.
    Result<StepDraft> draft_step(std::uint64_t step, const DiffReport& diff, bool has_delta) const;
    /// Takes the slot. With an anchor the step is a whole state. kConflict: the run moved on by a
    /// commit of this writer whose answer was lost; look(), and make the step again.
    Result<PublishReport> place_step(StepDraft draft, std::optional<AnchorEntry> anchor);
    /// Of the head's state.
    Result<void> place_anchor(AnchorEntry anchor);
    Result<void> heartbeat();
    /// Whether a late joiner would by now read so much that another anchor is worth its bytes.
    bool anchor_due() const;

    Uploader& uploader() { return uploader_; }
    Result<void> upload_side_files(std::uint64_t step, std::uint64_t epoch, AnchorEntry& anchor);
    /// A name for a file that is to be uploaded. Thread-safe.
    std::filesystem::path new_file(std::string_view kind);

    /// Whether an earlier attempt left open what the log holds, or the step publisher could not
    /// follow it, which says when it stands on the head again.
    bool needs_reconcile() const { return needs_reconcile_; }
    void set_needs_reconcile(bool needs_reconcile) { needs_reconcile_ = needs_reconcile; }
    const LogEntry& head() const { return *head_; }  // as it was read or written last
    std::uint64_t epoch() const { return epoch_; }
    std::uint64_t next_step() const;
    std::optional<Milliseconds> commit_life() const;  // until they are stale; nothing: for ever
    const CommitLog& log() const { return log_; }
    const WriterOptions& options() const { return options_; }

  private:
    RunWriter(CommitLog log, std::filesystem::path folder, const WriterOptions& options);
    Result<void> clear_outgoing() const;
    Result<void> read_head();
    Result<void> load_manifest();  // of the head as it was read
    void stand_on(LogEntry head);
    Commit draft(CommitKind kind) const;
    void list_anchor(Commit& placed, const AnchorEntry& anchor) const;
    Result<LogEntry> append_beside(Commit commit,
                                   const std::function<void(Commit&, std::uint64_t seq)>& place);

    Result<void> begin_epoch();
    Error fenced(const LogEntry& by) const;
    Result<void> accept_epoch(const LogEntry& head);  // kFenced unless it is this writer's
    Result<void> keep_owner() const;
    Result<void> recall_owner();

    CommitLog log_;
    std::filesystem::path folder_;
    WriterOptions options_;
    Uploader uploader_;
    std::optional<LogEntry> head_;  // there once the epoch has begun
    Manifest manifest_;
    std::uint64_t epoch_ = 0;
    std::string owner_;
    std::string writer_;
    bool needs_reconcile_ = true;
    std::atomic<std::uint64_t> files_made_ = 0;
};

}  // namespace wisp
