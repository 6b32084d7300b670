// The log of a run: one register per seq that is written once and never freed.
//
// Reading checks the run, the seq and the signature; appending decides races and doubts. Weights
// are nothing to it. Slots are contiguous from 1 on and stay taken for ever: retention replaces a
// commit by a tombstone, so that no stalled writer can ever win a slot twice, and the head can be
// found without a listing. doc/protocol.md sections 3 to 5. Thread-safe once opened.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/random.hpp"
#include "format/commit.hpp"
#include "format/run_record.hpp"
#include "wisp/run.hpp"
#include "wisp/store.hpp"

namespace wisp {

/// A commit that was read, checked and hashed.
struct LogEntry {
    Commit commit;
    std::string hash;
    Signer signer;
};

struct Slot {
    enum class Kind { kAbsent, kCommit, kBuried };
    Kind kind = Kind::kAbsent;
    std::optional<LogEntry> entry;
    std::uint64_t floor = 0;  // of a tombstone
};

/// When a certificate must have been valid: now for what is new, at the commit's own time for what
/// a newer commit has been built on.
enum class Judged { kNow, kThen };

class CommitLog {
  public:
    /// Reads format.json; kNoRun when there is none.
    static Result<CommitLog> open(const Location& where, const RunOptions& options);

    const Location& where() const { return where_; }
    const std::string& run() const { return run_; }
    const RunRecord& record() const { return record_; }
    Clock& clock() const { return *options_.clock; }
    /// Where the log begins: 1, or after the state that a branch starts from.
    std::uint64_t first_seq() const { return record_.origin ? record_.origin->state_seq + 1 : 1; }

    /// kCorrupt after a second look, kForked when it belongs to another run, kDenied when the
    /// signature is missing or not trusted.
    Result<Slot> read(std::uint64_t seq, Judged judged = Judged::kNow) const;
    /// As read(), for an older one that must be there: kGap when it is buried or missing.
    Result<LogEntry> require(std::uint64_t seq) const;
    /// The newest commit, starting from the hint or from `known` if that is further; nothing when
    /// the log is empty.
    Result<std::optional<LogEntry>> head(std::uint64_t known = 0) const;
    /// The newest map at or before `entry`; empty when there is none yet.
    Result<RoadMap> map_of(const LogEntry& entry) const;

    struct Appended {
        bool won = false;
        LogEntry entry;  // ours, or who was first
    };
    /// Fills in run, seq, previous and nonce, signs, and tries to take the slot after `head`. Only
    /// a branch's first commit brings its own `previous`: that of the state it starts from.
    /// kUnavailable: the outcome is open; read the log before writing again.
    Result<Appended> append(Commit draft, const std::optional<LogEntry>& head,
                            const std::optional<RunSigner>& signer);

    /// Replaces a commit below the floor by a tombstone.
    Result<void> bury(std::uint64_t seq, std::uint64_t floor);

    std::string random_hex(std::size_t bytes);

  private:
    CommitLog(const Location& where, const RunOptions& options);
    Result<Slot> parse_slot(std::uint64_t seq, std::string_view object, Judged judged) const;
    Result<std::uint64_t> hinted_seq() const;
    void hint_at(std::uint64_t seq) const;
    Result<Appended> settle(std::uint64_t seq, const std::string& object, const Error& doubt) const;
    Location where_;
    RunOptions options_;
    std::string run_;
    RunRecord record_;
    std::shared_ptr<Random> random_;
};

}  // namespace wisp
