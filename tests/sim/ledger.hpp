// The truth about every run in the store, kept by looking at each write as it happens, not through
// any actor's eyes; and the rules that no write may break.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "doubles/memory_store.hpp"
#include "log/commit.hpp"
#include "log/tombstone.hpp"
#include "sim/state_bank.hpp"
#include "wisp/replica.hpp"
#include "wisp/trust.hpp"

namespace wisp::sim {

struct LedgerRow {
    Commit commit;
    std::string hash;
    std::string author;
    bool buried = false;
    Signer signer;
    bool abandoned = false;  // stepped over: it had lapsed when the next one was written
    bool lost = false;       // taken away by somebody who had no business with it
};

struct RunLedger {
    std::string run;
    std::map<std::uint64_t, LedgerRow> rows;
    std::map<std::uint64_t, std::string> owners;  // who began each epoch
    std::set<std::uint64_t> void_slots;           // taken by somebody whom nobody trusts
    const LedgerRow* head() const { return rows.empty() ? nullptr : &rows.rbegin()->second; }
    const Manifest* manifest() const;
    std::uint64_t floor() const { return rows.empty() ? 0 : head()->commit.floor; }
};

class Ledger {
  public:
    Ledger(Store& truth, const StateBank& bank) : truth_(truth), bank_(bank) {}

    /// After `key` was written by `author`; `before` is what was there.
    void wrote(const std::string& key, const std::optional<Bytes>& before,
               std::span<const std::byte> bytes, const std::string& author);
    void removed(const std::string& key);
    void lose(const std::string& prefix, std::uint64_t seq, bool lost);

    const RunLedger* find(const std::string& prefix) const;
    /// Nothing when all is well: a record of a replica must name what was committed.
    std::string judge_position(const std::string& prefix, const ReplicaRecord& record) const;
    /// Whether a writer may be told that it was fenced.
    bool may_be_fenced(const std::string& prefix, const std::string& author) const;
    const std::string& problem() const { return problem_; }
    /// Writes of this author count for nothing: nobody has reason to believe them.
    void distrust(const std::string& author) { distrusted_.insert(author); }
    /// Whether `key` holds what somebody trusted wrote.
    bool holds_honest(const std::string& key) const { return honest_.contains(key); }
    /// A file beside the weights that a trainer handed over, by its text.
    void vouch_for(const std::string& side_file) { side_files_.insert(side_file); }
    bool vouched_for(const std::string& side_file) const { return side_files_.contains(side_file); }
    /// Whatever somebody trusted writes is signed under this key.
    void expect_signatures(const PublicKey& root) { roots_ = {root}; }
    /// Creates may overwrite: one writer, told to be one.
    void expect_overwrites() { overwrites_ = true; }

  private:
    void add_commit(RunLedger& ledger, const std::string& prefix, std::uint64_t seq,
                    std::span<const std::byte> bytes, const std::string& author);
    void check_chain(RunLedger& ledger, const LedgerRow& row);
    void step_over(RunLedger& ledger, const LedgerRow& row);
    void check_writer(RunLedger& ledger, const LedgerRow& row);
    void check_objects(const std::string& prefix, const LedgerRow& row);
    void check_file(const std::string& prefix, const StoredFile& file);
    void bury(RunLedger& ledger, std::uint64_t seq, const Tombstone& tombstone);
    void blame(std::string problem);

    Store& truth_;
    const StateBank& bank_;
    std::map<std::string, RunLedger> runs_;  // by prefix
    std::set<std::string> distrusted_;
    std::set<std::string> honest_;  // keys
    std::set<std::string> side_files_;
    std::vector<PublicKey> roots_;
    std::string problem_;
    bool overwrites_ = false;
};

}  // namespace wisp::sim
