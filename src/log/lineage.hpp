// The history below one commit that counts: whatever is read here is linked to it by hashes.
//
// Commits name several older ones (ancestors_after), so that any of them is reached in a few reads
// and a lost one can often be gone around. A certificate that has ended since is no matter: the
// head vouches for all that it was built on. Used from one thread; the log must outlive it.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "log/commit_log.hpp"

namespace wisp {

class Lineage {
  public:
    /// `head` was judged by CommitLog.
    Lineage(const CommitLog& log, LogEntry head);
    /// Of the log's newest commit. kNotFound when nothing was published yet.
    static Result<Lineage> of_newest(const CommitLog& log);

    const LogEntry& head() const { return head_; }
    const CommitLog& log() const { return *log_; }

    /// The commit in slot `seq`. kGap: missing, given up, or not part of this history; kForked:
    /// another one lies there than history has.
    Result<LogEntry> at(std::uint64_t seq);
    /// The one before `entry`, which is part of this history. Nothing where history begins: at the
    /// run's first commit, or above what retention has given up. Below the floor a void object does
    /// for a tombstone, and is noted in `overwritten`.
    Result<std::optional<LogEntry>> before(const LogEntry& entry,
                                           std::optional<std::uint64_t>* overwritten = nullptr);
    /// Those after `from`, which may be gone, up to `to`, oldest first. kGap when one is missing.
    Result<std::vector<LogEntry>> between(std::uint64_t from, std::uint64_t to);
    /// Whether this history has that very commit, be it still there or not. kGap when what is
    /// missing leaves it open.
    Result<bool> contains(const CommitRef& ref);

  private:
    struct Known {
        std::string hash;
        bool read = false;
        bool lost = false;
    };
    /// Nothing when history steps over that slot.
    Result<std::optional<CommitRef>> find(std::uint64_t seq);
    Result<LogEntry> fetch(const CommitRef& ref);
    void take_in(const LogEntry& entry);
    bool is_first(const Commit& commit) const;

    const CommitLog* log_;
    LogEntry head_;
    std::map<std::uint64_t, Known> known_;
    std::map<std::uint64_t, LogEntry>
        entries_;  // without those that carry a manifest, which are large
};

}  // namespace wisp
