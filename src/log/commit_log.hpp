// The log of a run: one register per seq that is written once and never freed.
//
// Here a slot is judged by itself, the head is found, and the next slot is taken. What lies below
// the head is read through log/lineage.hpp, which judges it by the chain of hashes that leads
// down from there; the two are the only way to a commit. Weights are nothing to them.
//
// Slots stay taken for ever: retention replaces a commit by a tombstone, so that no stalled writer
// can win a slot twice. doc/protocol.md sections 3 to 5. Thread-safe once opened, save
// require_serial() and on_void().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/random.hpp"
#include "log/log_slot.hpp"
#include "log/run_record.hpp"
#include "wisp/run.hpp"
#include "wisp/store.hpp"

namespace wisp {

class CommitLog {
  public:
    /// Reads format.json. kNoRun when there is none, kForked when it is not the run expected,
    /// kDenied when nobody trusted vouches for the run.
    static Result<CommitLog> open(const Location& where, const RunOptions& options);

    const Location& where() const { return where_; }
    const std::string& run() const { return run_; }
    const RunRecord& record() const { return record_; }
    bool is_signed() const { return !record_.roots.empty(); }
    Clock& clock() const { return *options_.clock; }
    /// Where the log begins: 1, or after the state that a branch starts from.
    std::uint64_t first_seq() const { return record_.origin ? record_.origin->state_seq + 1 : 1; }

    /// Certificates below `serial` are revoked from now on.
    void require_serial(std::uint64_t serial) { min_serial_ = std::max(min_serial_, serial); }
    /// Told of each void or lapsed object that is stepped over, again whenever it is met.
    void on_void(std::function<void(std::uint64_t seq, const Error&)> told) {
        told_ = std::move(told);
    }

    /// Of an unsigned run also: kCorrupt after a second look, kForked when it is another run's.
    Result<Slot> read(std::uint64_t seq) const;
    /// The first slot after `seq` that is not void.
    Result<Slot> next(std::uint64_t seq) const;
    /// The newest commit that counts, looked for from the hint or from `known` if that is further;
    /// nothing when the log is empty, kDenied when all that is signed well has lapsed.
    Result<std::optional<LogEntry>> head(std::uint64_t known = 0) const;
    /// As head(), for a caller that will write what comes next, or remove anything: a lapsed
    /// head will do if it was signed by the same key, or if the writer was told to take the run
    /// over. kGap when there are commits beyond the next slot, which must not be written into then.
    Result<std::optional<LogEntry>> head_for(const std::optional<RunSigner>& signer,
                                             bool take_over) const;
    /// Whether a commit that was signed well counts by itself, now.
    bool counts(const LogEntry& entry) const;
    /// The seq that `latest` names, 0 when it is of no use. kUnavailable: ask again, since without
    /// it a log with a hole looks like a shorter one.
    Result<std::uint64_t> hinted_seq() const;

    /// The commit that `ref`, from a commit that counts, names. kGap when it is missing or given
    /// up, kForked when another one is there, kCorrupt when it is damaged.
    Result<LogEntry> follow(const CommitRef& ref) const;
    /// What is there, whatever it is worth: judge it by a hash that counts. Nothing when it is no
    /// commit.
    Result<std::optional<LogEntry>> peek(std::uint64_t seq) const;
    /// The newest manifest at or before `entry`; empty when there is none yet.
    Result<Manifest> manifest_of(const LogEntry& entry) const;

    struct Appended {
        bool won = false;
        LogEntry entry;  // ours, or who was first
    };
    /// What to write, for the slot that it will stand in.
    using Draft = std::function<Commit(std::uint64_t seq)>;
    /// Takes the first slot after `head` that is not void: fills in run, seq, nonce, time and what
    /// leads back, signs, and makes sure that readers will believe it. Only a branch's first commit
    /// brings its own `previous`: that of the state it starts from. kUnavailable: the outcome is
    /// open; read the log before writing again. kDenied: the signer is missing or will not do.
    Result<Appended> append(const Draft& draft, const std::optional<LogEntry>& head,
                            const std::optional<RunSigner>& signer);

    /// Replaces a commit below the floor by a tombstone.
    Result<void> bury(std::uint64_t seq, std::uint64_t floor);

    std::string random_hex(std::size_t bytes);

  private:
    CommitLog(const Location& where, const RunOptions& options);
    Result<void> load_trust();
    Result<Slot> parse_slot(std::uint64_t seq, std::string_view object) const;
    Result<Slot> judge(std::uint64_t seq, std::string_view object, std::int64_t now_ms) const;
    /// As read(), at a time of the caller's: what is compared is judged at one moment, since the
    /// clock of a machine may be set back between two requests.
    Result<Slot> read_at(std::uint64_t seq, std::int64_t now_ms) const;
    Result<SlotLook> look_at(std::uint64_t seq) const;
    Result<std::optional<LogEntry>> newest_sound(std::uint64_t known) const;
    Result<bool> is_outranked(const LogEntry& entry, std::int64_t now_ms) const;
    Result<std::optional<LogEntry>> counting_below(const LogEntry& top, std::int64_t now_ms) const;
    Result<LogEnding> find_ending(std::uint64_t known) const;
    Result<bool> has_grown(std::uint64_t seq) const;
    /// Whether the log goes on from `seq` to `beyond`; kGap when only the latter is there.
    Result<bool> goes_on(std::uint64_t seq, std::uint64_t beyond) const;
    void tell_void(std::uint64_t seq, const std::optional<Error>& why) const;
    void hint_at(std::uint64_t seq) const;
    Result<std::string> write_object(const Commit& commit,
                                     const std::optional<RunSigner>& signer) const;
    /// Nothing when the slot is void.
    Result<std::optional<Appended>> take_slot(std::uint64_t seq, const std::string& object,
                                              const HeadLook& head) const;
    Result<void> check_not_behind(std::uint64_t seq);
    Result<bool> was_given_up(std::uint64_t seq) const;
    Result<std::optional<Appended>> resolve(std::uint64_t seq, const std::string& object,
                                            bool is_taken, const Error& doubt,
                                            const HeadLook& head) const;
    Location where_;
    RunOptions options_;
    std::string run_;
    RunRecord record_;
    std::vector<PublicKey> keys_;  // whose word counts; empty: the run is unsigned
    std::uint64_t min_serial_ = 0;
    std::int64_t looked_ms_ = 0;  // when a writer last saw how far the log goes
    std::function<void(std::uint64_t, const Error&)> told_;
    std::shared_ptr<Random> random_;
};

}  // namespace wisp
