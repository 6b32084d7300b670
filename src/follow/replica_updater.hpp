// Takes a replica along a fetch plan: fetches, proves, applies; and brings it to a state by
// whatever way is left when objects turn out to be missing or damaged, or the run moves on.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "follow/fetch_plan.hpp"
#include "follow/incoming_state.hpp"
#include "follow/object_fetcher.hpp"
#include "follow/slice_fetcher.hpp"
#include "log/lineage.hpp"
#include "wisp/replica.hpp"

namespace wisp {

/// Told of each move, when it is durable: each apply() and adopt() of a replica is one.
struct Moved {
    bool joined = false;  // a whole state was taken over
    std::uint64_t deltas = 0;
    std::uint64_t changed_elements = 0;
    double apply_seconds = 0;
    FetchCounts fetched;
};

struct ReplicaUpdaterOptions {
    unsigned threads = 0;
    unsigned parallel_fetches = 4;
    std::optional<std::filesystem::path> base;
    std::function<Result<void>(const Moved&)> on_moved;
    /// Told what went wrong and is worked around, unless this fails.
    std::function<Result<void>(const Error&)> on_fault;
    Progress progress = {};
};

/// Where to go. Asked before every try, since the run may have moved on meanwhile.
struct Aim {
    /// The history of the newest head; null: stay.
    std::function<Result<Lineage*>()> newest;
    /// The state in it; nothing: stay.
    std::function<Result<std::optional<StateName>>(Lineage&)> target;
};

class ReplicaUpdater {
  public:
    /// `at` is where the replica stands; kept up to date. All must outlive the updater.
    ReplicaUpdater(const CommitLog& log, Replica& replica, ReplicaRecord& at,
                   ReplicaUpdaterOptions options);

    /// By the one commit that follows; kWrongBase when it does not start where the replica stands.
    Result<void> take(const LogEntry& next);
    /// By the cheapest way that works. The head aimed at is where the log is taken to have been
    /// followed to. False: it was to stay. kGap when no way is left.
    Result<bool> go(const Aim& aim);
    /// To `target`, a state of `history`, whatever the run does meanwhile.
    Result<void> go(Lineage& history, const StateName& target);

  private:
    /// A delta on the way, and where it leads to.
    struct WantedDelta {
        StoredFile file;
        StateName to;
        std::uint64_t walked_to = 0;  // the seq at the end of single deltas that are walked along
    };
    /// The same, fetched.
    struct Stage {
        std::filesystem::path delta;
        StateName to;
    };
    Result<bool> try_once(Lineage& history, const Aim& aim);
    Error no_way(const Manifest& manifest, const StateName& target) const;
    Result<void> carry_out(Lineage& history, const StateName& target, const FetchPlan& plan);
    Result<std::vector<WantedDelta>> list_deltas(Lineage& history, const FetchPlan& plan);
    Result<void> list_walk(Lineage& history, const FetchStep& fetch_step,
                           std::vector<WantedDelta>& wanted);
    Result<std::vector<Stage>> fetch_deltas(const std::vector<WantedDelta>& wanted,
                                            const HeldSlices* held);
    Result<std::filesystem::path> fetch(const StoredFile& file, const HeldSlices* held = nullptr);
    /// Of a sliced delta only what is held, unless that is all.
    Result<std::filesystem::path> fetch_once(const StoredFile& file, const HeldSlices* held) {
        return held == nullptr || !file.head ? fetcher_.fetch(file) : slices_.fetch(file, *held);
    }
    void avoid(const StoredFile& file);
    void avoid(const AnchorEntry& anchor);
    std::size_t known_losses() const { return avoid_.size() + damaged_.size(); }
    /// The deltas from `first` on that are taken in at once.
    static std::vector<std::filesystem::path> next_batch(const std::vector<Stage>& stages,
                                                         std::size_t first);
    Result<void> apply_live(const std::vector<Stage>& stages, Moved& last_batch);

    // Joining: a state is put together from an anchor or a base, whole or in parts.
    Result<void> join(const FetchPlan& plan, const std::vector<WantedDelta>& wanted,
                      const ReplicaRecord& after, Moved& moved);
    Result<void> take_headers(const AnchorEntry& anchor, IncomingState& incoming);
    Result<std::shared_ptr<const HeldSlices>> needed_of(const FetchPlan& plan,
                                                        const std::vector<WantedDelta>& wanted,
                                                        IncomingState& incoming);
    /// The delta that it is; empty where it is files.
    Result<std::filesystem::path> fetch_anchor(const AnchorEntry& anchor,
                                               const IncomingState& incoming);
    Result<void> put_together(const AnchorEntry& anchor, const std::filesystem::path& delta,
                              IncomingState& incoming);
    Result<void> prove_start(const FetchPlan& plan, IncomingState& incoming);
    static Result<void> apply_staged(IncomingState& incoming, const StateDigest& from,
                                     const std::vector<Stage>& stages, Moved& moved);
    Result<ReplicaRecord> record_of(Lineage& history, const StateName& target) const;
    Result<void> tell(Moved moved);
    Result<std::optional<StateDigest>> base_digest();

    const CommitLog& log_;
    Replica& replica_;
    ReplicaRecord& at_;
    ReplicaUpdaterOptions options_;
    TransferTally tally_;
    ObjectFetcher fetcher_;
    SliceFetcher slices_;
    std::set<std::string> avoid_;    // as in FetchPlanRequest
    std::set<std::string> damaged_;  // keys of files that came damaged once
    std::optional<StateDigest> base_digest_;
};

StateName state_of(const ReplicaRecord& record);
/// Of a replica that has taken in `entry`: how far the log was followed, its state as before.
ReplicaRecord record_past(const ReplicaRecord& before, const LogEntry& entry);
/// The same, of one whose weights are the state of `entry`.
ReplicaRecord record_at(const ReplicaRecord& before, const LogEntry& entry);

}  // namespace wisp
