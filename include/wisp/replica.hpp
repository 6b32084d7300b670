// A copy of the weights that moves from one committed state to another, and nowhere else.
//
// Two forms: a folder that any loader can open between steps, and memory. Its holder may
// read its weights between calls; a Replica is used from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wisp/checkpoint.hpp"
#include "wisp/delta.hpp"
#include "wisp/result.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// Where a replica stands, as it remembers it across restarts.
struct ReplicaRecord {
    std::string run;
    std::uint64_t epoch = 0;
    std::uint64_t seq = 0;        // the last commit it has taken in
    std::string commit_hash;      // of that commit; empty when it came by a merged delta
    std::uint64_t state_seq = 0;  // the commit that made its state; 0: it has none
    std::uint64_t step = 0;
    StateDigest state;
    bool unproven = false;  // on the word of files that carry no digest: wisp/trl_layout.hpp
    std::uint64_t chain_id = 0;
    std::uint64_t cumulative_delta_bytes = 0;
    std::uint64_t state_index = 0;
    std::uint64_t certificate_serial = 0;  // the highest met; lower ones are revoked
    friend bool operator==(const ReplicaRecord&, const ReplicaRecord&) = default;
};

/// Leaves how far the log was followed, and takes away the state.
inline void forget_state(ReplicaRecord& record) {
    record.state_seq = record.step = record.chain_id = record.cumulative_delta_bytes =
        record.state_index = 0;
    record.state = {};
    record.unproven = false;
}

/// A replica in memory has moved from one state to another. Blocks are in order of tensors and
/// elements; going back, it is the old bits that are in memory now.
struct ReplicaMove {
    const Weights* weights = nullptr;
    const ReplicaRecord* to = nullptr;
    const std::vector<MovedBlock>* blocks = nullptr;
    bool back = false;
    StateDigest moved_by = {};  // of a relay: how the digest of what is held goes on
};

class Replica {
  public:
    virtual ~Replica() = default;
    virtual std::string label() const = 0;
    /// Null until there is a state, and while it is in doubt.
    virtual const Weights* weights() const = 0;
    /// Whether it stands at a state that deltas can lead on from.
    virtual bool has_state() const { return weights() != nullptr; }
    /// A change failed half-way, on a full disk for example: only load() tells where it stands.
    virtual bool in_doubt() const = 0;
    /// Finishes or undoes what an interrupted change left, proves the state, and reads the record:
    /// nothing when new, state_seq 0 when the state was damaged.
    virtual Result<std::optional<ReplicaRecord>> load() = 0;
    virtual Result<void> save(const ReplicaRecord& record) = 0;
    /// Moves to `after` by consecutive deltas, all or none. kWrongBase, kCorrupt: nothing changed.
    virtual Result<ApplyReport> apply(const std::vector<std::filesystem::path>& deltas,
                                      const ReplicaRecord& after) = 0;
    /// Moves to `after` by changes that were found against this very state just now, and so need no
    /// proof; they may lack the old bits. kUnsupported: apply the delta instead. After another
    /// failure, load() again.
    virtual Result<void> overwrite(std::span<const MovedBlock> changes, const ReplicaRecord& after);
    /// Takes over a proven checkpoint folder that lies inside scratch(); its files are moved.
    virtual Result<void> adopt(const std::filesystem::path& folder, const ReplicaRecord& after) = 0;
    /// Forgets a state that turned out to be damaged; the next one must be adopted.
    virtual Result<void> discard() = 0;
    /// Back to the state before the last apply(), once. kUnsupported where that is not kept,
    /// kNotFound when there is none. A follower of it must be opened anew.
    virtual Result<void> step_back();
    /// What sliced deltas must bring; null: all. Files that bring no more are for apply() only.
    virtual std::shared_ptr<const HeldSlices> held() const { return nullptr; }
    /// The same of a state of these tensors that is about to be fetched; null: all of it. If not,
    /// adopt() is given files of which only these parts are proven, and holes for the rest.
    virtual std::shared_ptr<const HeldSlices> held_of(const Schema&) { return nullptr; }
    /// A folder for fetched files, on the same disk; survives restarts so that fetches resume.
    virtual std::filesystem::path scratch() const = 0;
};

struct FolderReplicaOptions {
    unsigned threads = 0;
    /// False: a cache that is proven before each use; a crash may tear it but costs no fsync.
    bool durable = true;
    /// How long a change waits for readers (wisp/followed_folders.hpp); then it is kUnavailable.
    Milliseconds reader_timeout = Milliseconds(60'000);
    Progress progress = {};
};

/// Opens or makes `folder`, and locks it against other processes (kConflict).
Result<std::unique_ptr<Replica>> open_folder_replica(const std::filesystem::path& folder,
                                                     const FolderReplicaOptions& options = {});

struct MemoryReplicaOptions {
    unsigned threads = 0;
    /// For fetched files; a temporary folder when empty. Each replica needs its own (kConflict).
    std::filesystem::path scratch;
    /// Asked for memory of exactly this schema when a whole state is to be taken over: that memory
    /// becomes the replica. Others may read it between moves; what they write is noticed where the
    /// next change touches it. Absent: the replica has memory of its own.
    std::function<Result<std::shared_ptr<MutableWeights>>(const Schema&)> target;
    /// Keep what each apply() overwrites, for step_back() and to undo an apply() that was stopped.
    bool keep_previous = false;
    /// Told of each move when memory holds it; if it fails, the old bits are put back.
    std::function<Result<void>(const ReplicaMove&)> on_move;
    /// Told when a whole new state was taken over; if it fails, the replica has no state.
    std::function<Result<void>(const Weights&, const ReplicaRecord& at)> on_adopt;
    /// Called before the first byte is overwritten; what it returns lives until the last one is and
    /// the move was told. If it fails, nothing is overwritten.
    std::function<Result<std::shared_ptr<void>>()> enter;
};
Result<std::unique_ptr<Replica>> open_memory_replica(const MemoryReplicaOptions& options = {});

}  // namespace wisp
