// The truth about every run in the store, kept by looking at each write as it happens, not through
// any actor's eyes; and the rules that no write may break.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "format/commit.hpp"
#include "format/tombstone.hpp"
#include "sim/state_bank.hpp"
#include "store/memory_store.hpp"

namespace wisp::sim {

struct LedgerRow {
    Commit commit;
    std::string hash;
    std::string author;
    bool buried = false;
};

struct RunLedger {
    std::string run;
    std::map<std::uint64_t, LedgerRow> rows;
    std::map<std::uint64_t, std::string> owners;  // who began each epoch
    const LedgerRow* head() const { return rows.empty() ? nullptr : &rows.rbegin()->second; }
    const RoadMap* map() const;
    std::uint64_t floor() const { return rows.empty() ? 0 : head()->commit.floor; }
};

class Ledger {
  public:
    Ledger(Store& truth, const StateBank& bank) : truth_(truth), bank_(bank) {}

    /// After `key` was written by `author`; `before` is what was there.
    void wrote(const std::string& key, const std::optional<Bytes>& before,
               std::span<const std::byte> bytes, const std::string& author);
    void removed(const std::string& key);

    const RunLedger* find(const std::string& prefix) const;
    /// Nothing when all is well: a record of a replica must name what was committed.
    std::string judge_position(const std::string& prefix, std::uint64_t epoch, std::uint64_t seq,
                               std::uint64_t state_seq, const StateDigest& state) const;
    /// Whether a writer may be told that it was fenced.
    bool may_be_fenced(const std::string& prefix, const std::string& author) const;
    const std::string& problem() const { return problem_; }
    /// Creates may overwrite: one writer, told to be one.
    void expect_overwrites() { overwrites_ = true; }

  private:
    void add_commit(RunLedger& ledger, const std::string& prefix, std::uint64_t seq,
                    std::span<const std::byte> bytes, const std::string& author);
    void check_chain(const RunLedger& ledger, const LedgerRow& row);
    void check_writer(RunLedger& ledger, const LedgerRow& row);
    void check_objects(const std::string& prefix, const LedgerRow& row);
    void check_file(const std::string& prefix, const StoredFile& file);
    void bury(RunLedger& ledger, std::uint64_t seq, const Tombstone& tombstone);
    void blame(std::string problem);

    Store& truth_;
    const StateBank& bank_;
    std::map<std::string, RunLedger> runs_;  // by prefix
    std::string problem_;
    bool overwrites_ = false;
};

}  // namespace wisp::sim
