// What publishing consists of, in pieces that the plain and the asynchronous publisher put
// together: prepare (diff against the baseline), commit (upload, then take the slot), advance (the
// baseline), anchor. doc/protocol.md section 6.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "publish/prepared_step.hpp"
#include "publish/run_writer.hpp"
#include "wisp/replica.hpp"

namespace wisp {

class StepPublisher {
  public:
    /// Brings the baseline to the run's head. It must outlive this.
    static Result<std::unique_ptr<StepPublisher>> open(const Location& run, Replica& baseline,
                                                       const PublishOptions& options);

    /// Brings the baseline to the head if need be; without one the step is a whole state.
    Result<PreparedStep> prepare(WeightStream& weights, std::uint64_t step);
    /// Against the baseline, and looking at nothing else; the caller holds baseline_mutex(). Done
    /// with the weights as soon as what changed is known, or where that is much, as soon as they
    /// are copied: commit() codes it, against the baseline, which only commit() and advance() of
    /// this step may follow. kWrongBase when the baseline is not at the state it should be at, or
    /// has another schema.
    Result<PreparedStep> prepare_found(WeightStream& weights, std::uint64_t step);
    /// The same, from what somebody else found to have changed.
    Result<PreparedStep> prepare_changes(ChangeStream& changes, std::uint64_t step);
    /// `waiting`, made from the same state as `onto`, as it is after `onto`, which is committed.
    Result<PreparedStep> rebase(const PreparedStep& onto, PreparedStep& waiting);
    /// kConflict: the run moved on by a commit of this writer whose answer was lost; call
    /// reconcile(), and prepare again.
    Result<PublishReport> commit(PreparedStep& step);
    /// The baseline after commit(), under baseline_mutex(); what fails is mended by reconcile().
    void advance(const PreparedStep& step, PublishReport& report);
    /// Publishes an anchor of the baseline's state if one is due. `source` holds the same weights;
    /// null: take the baseline's own.
    void anchor_if_due(const Weights* source, PublishReport& report);
    Result<void> heartbeat();

    /// Brings head and baseline to what the bucket says.
    Result<void> reconcile();
    /// The baseline to the head as it was read. It is left alone if it is there already, so that
    /// what is being prepared against it stays good.
    Result<void> stand_on_head();
    bool is_head(const PreparedStep& step) const;  // as it was read last

    /// Guards what prepare_found() reads against advance(); of use only with several threads.
    std::mutex& baseline_mutex() { return baseline_mutex_; }
    const ReplicaRecord& at() const { return at_; }
    RunWriter& writer() { return *writer_; }

  private:
    StepPublisher(std::unique_ptr<RunWriter> writer, Replica& baseline,
                  const PublishOptions& options)
        : writer_(std::move(writer)), options_(options), baseline_(baseline) {}
    const Commit& head() const { return writer_->head().commit; }
    bool has_baseline(const Schema& schema) const;
    DiffOptions diff_options(const Schema& schema, std::uint64_t step) const;
    std::uint64_t kept_bytes(const Schema& schema) const;  // of a list of changes, at most
    /// Still without changes. kWrongBase when the baseline is missing or of another schema.
    Result<PreparedStep> open_step(const Schema& schema, std::uint64_t step);
    /// kWrongBase unless the baseline, as it was read, is the state that it says.
    Result<void> require_state(const StateDigest& read) const;
    Result<PreparedStep> prepare_delta(WeightStream& weights, std::uint64_t step);
    Result<PreparedStep> prepare_whole(WeightStream& weights, std::uint64_t step);
    /// Everything, to be compared once the trainer has gone on.
    Result<PreparedStep> prepare_copy(WeightStream& weights, std::uint64_t step);
    /// Null: there is no memory to spare for it.
    std::shared_ptr<OwnedWeights> memory_for_copy(const Schema& schema);
    Result<void> code(PreparedStep& step);
    Result<void> code_copy(PreparedStep& step);
    Result<void> take_over_whole(const PreparedStep& step, const ReplicaRecord& after);
    Result<void> follow_head();
    Result<void> note_head();  // after a commit that made no state
    Result<void> publish_anchor(const Weights& source, PublishReport& report);
    Result<AnchorEntry> upload_anchor(const Weights& source, std::uint64_t step,
                                      std::uint64_t epoch);
    Result<bool> upload_over_base(const Weights& source, std::uint64_t step, std::uint64_t epoch,
                                  AnchorEntry& anchor);
    Result<void> upload_whole(const Weights& source, std::uint64_t step, std::uint64_t epoch,
                              AnchorEntry& anchor);
    Result<void> upload_sliced(const Weights& source, std::uint64_t step, std::uint64_t epoch,
                               AnchorEntry& anchor);
    Result<void> upload_header(const Bytes& header, const std::string& name, std::uint64_t step,
                               std::uint64_t epoch, AnchorEntry& anchor);

    std::unique_ptr<RunWriter> writer_;
    PublishOptions options_;
    Replica& baseline_;
    ReplicaRecord at_;
    bool behind_ = false;              // the baseline is not at at_; guarded by baseline_mutex()
    std::atomic<bool> dense_ = false;  // too much changed in the last step for a list of it
    std::mutex spare_mutex_;
    std::shared_ptr<OwnedWeights> spare_;  // a copy that was coded, for the next to be made in
    std::mutex baseline_mutex_;
};

}  // namespace wisp
