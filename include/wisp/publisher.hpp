// The trainer's side: weights in, committed steps out.
//
// The baseline is a replica of the last committed state; a delta is always against it, so a failed
// publish loses nothing. Opening a publisher takes the run over: the writer before it is fenced and
// finds out at its next commit (kFenced).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wisp/delta.hpp"
#include "wisp/replica.hpp"
#include "wisp/run.hpp"

namespace wisp {

/// Of a process that writes a run.
struct WriterOptions {
    RunOptions run;
    std::optional<RunSigner> signer;
    /// Every N states; 0: when what a late joiner would read since the last anchor outweighs one.
    std::uint64_t anchor_every = 0;
    /// Stands in the header of anchors that are not copied from files.
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    /// Configuration, tokenizer and the like that belong beside the weights.
    std::vector<std::filesystem::path> side_files;
    unsigned threads = 0;
    unsigned parallel_uploads = 4;
    std::uint64_t part_bytes = std::uint64_t{1} << 30;
    /// Commits say that they are stale after this; 0: never. Absent: a day if the run is signed, so
    /// that a frozen or cut log is noticed.
    std::optional<Milliseconds> expires_after;
    /// Take the run over even though this baseline was fenced before.
    bool take_over = false;
    Progress progress;
};

struct PublishOptions : WriterOptions {
    /// Anchors are written as a delta from this checkpoint, known to all replicas by its name.
    std::optional<std::filesystem::path> public_base;
    std::string public_base_name;
    /// What changed in a step is kept in memory if it fits into this and a 24th of the weights'
    /// size; denser steps move the baseline more slowly. An AsyncPublisher copies steps whose list
    /// would outgrow a sixth of the weights, in a quarter of the free memory at most: where that
    /// is too little they are encoded while the trainer waits.
    std::uint64_t change_buffer_bytes = std::uint64_t{128} << 20;
};

struct PublishReport {
    std::uint64_t seq = 0;
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;
    CommitKind kind = CommitKind::kDelta;
    bool present = false;   // the run stood there already; nothing was committed
    bool anchored = false;  // an anchor was written with this step
    bool rewound = false;   // the step was at or below the head's: a new epoch began
    std::uint64_t changed_elements = 0;
    std::uint64_t total_elements = 0;
    std::uint64_t delta_bytes = 0;
    std::uint64_t anchor_bytes = 0;
    std::uint64_t uploaded_bytes = 0;
    std::uint64_t reused_bytes = 0;  // were in the bucket already
    StateDigest state;
    /// An anchor was due and could not be written. The step is committed all the same, and the
    /// anchor stays due.
    std::optional<Error> anchor_failure;
    double diff_seconds = 0;
    double upload_seconds = 0;
    double commit_seconds = 0;
    double baseline_seconds = 0;

    /// "present", or the name of its kind.
    std::string_view kind_text() const { return present ? "present" : name_of(kind); }
};

class Publisher {
  public:
    /// Brings the baseline to the run's head, from the bucket if need be. It must outlive this.
    static Result<Publisher> open(const Location& run, Replica& baseline,
                                  const PublishOptions& options);
    Publisher(Publisher&&) noexcept;
    Publisher& operator=(Publisher&&) noexcept;
    ~Publisher();

    /// Commits `weights` as `step`. kFenced: a newer writer owns the run, for good. After
    /// kUnavailable the step may or may not be committed; the next call finds out.
    /// A step at or below the head's is a rewind: a new epoch with an anchor of its own.
    Result<PublishReport> publish(const Weights& weights, std::uint64_t step);
    Result<PublishReport> publish(WeightStream& weights, std::uint64_t step);
    /// Says that the trainer lives, and moves the expiry on.
    Result<void> heartbeat();
    /// What would be taken for the next step if the caller names none.
    std::uint64_t next_step() const;
    const ReplicaRecord& at() const;
    const std::string& run() const;

  private:
    friend class PublishWorker;
    struct State;
    explicit Publisher(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

/// Where a publisher's baseline lies if nobody names a folder: in the user's cache, one for each
/// run. kInvalid: neither XDG_CACHE_HOME nor HOME is set.
Result<std::filesystem::path> cached_baseline(const std::string& run_id);

}  // namespace wisp
