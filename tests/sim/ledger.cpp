#include "sim/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <tuple>

#include "base/sha256.hpp"
#include "log/run_keys.hpp"
#include "log/run_record.hpp"

namespace wisp::sim {
namespace {

constexpr std::uint64_t kAnySize = std::numeric_limits<std::uint32_t>::max();

bool is_maintenance(CommitKind kind) {
    return kind == CommitKind::kMerge || kind == CommitKind::kFloor;
}

/// "runs/a" and "commits/0042" of "runs/a/commits/0042".
std::pair<std::string, std::string> split_key(const std::string& key) {
    for (const std::string_view part : {kCommitsPrefix, kAnchorsPrefix, kDeltasPrefix, kRunKey,
                                        kLatestKey, kReplicasPrefix, kBranchesPrefix}) {
        const std::size_t at = key.find("/" + std::string(part));
        if (at != std::string::npos) return {key.substr(0, at), key.substr(at + 1)};
    }
    return {"", key};
}

std::uint64_t number_of(std::string_view digits) {
    std::uint64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
}

template <class Visit>
void each_needed_file(const RunLedger& ledger, const Visit& visit) {
    for (const auto& [seq, row] : ledger.rows) {
        if (!row.buried && seq > ledger.floor() && row.commit.delta) visit(*row.commit.delta);
    }
    const Manifest* manifest = ledger.manifest();
    if (manifest == nullptr) return;
    for (const AnchorEntry& anchor : manifest->anchors) {
        for (const StoredFile& file : anchor.files) visit(file);
    }
    for (const MergedDelta& merged_delta : manifest->merged_deltas) visit(merged_delta.delta);
}

}  // namespace

const Manifest* RunLedger::manifest() const {
    if (rows.empty()) return nullptr;
    const Commit& newest = head()->commit;
    const auto found = rows.find(newest.manifest ? newest.seq : newest.manifest_at.seq);
    return found == rows.end() || !found->second.commit.manifest ? nullptr
                                                                 : &*found->second.commit.manifest;
}

void Ledger::blame(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
}

const RunLedger* Ledger::find(const std::string& prefix) const {
    const auto found = runs_.find(prefix);
    return found == runs_.end() ? nullptr : &found->second;
}

void Ledger::wrote(const std::string& key, const std::optional<Bytes>& before,
                   std::span<const std::byte> bytes, const std::string& author) {
    const auto [prefix, name] = split_key(key);
    RunLedger& ledger = runs_[prefix];
    if (distrusted_.contains(author)) {
        if (name.starts_with(kCommitsPrefix) && !honest_.contains(key)) {
            ledger.void_slots.insert(
                number_of(std::string_view(name).substr(kCommitsPrefix.size())));
        }
        return;
    }
    honest_.insert(key);
    if (before && std::ranges::equal(*before, bytes)) return;
    if (name == kRunKey) {
        if (before) blame(fmt::format("{} was overwritten by {}", key, author));
        ledger.run = run_id_of(as_text(bytes));
    } else if (name.starts_with(kCommitsPrefix)) {
        const std::uint64_t seq = number_of(std::string_view(name).substr(kCommitsPrefix.size()));
        const auto tombstone = parse_tombstone(as_text(bytes));
        if (tombstone) {
            bury(ledger, seq, *tombstone);
        } else if (before && !overwrites_) {
            blame(fmt::format("{} was overwritten by {}", key, author));
        } else {
            add_commit(ledger, prefix, seq, bytes, author);
        }
    } else if (is_data_key(name) && before) {
        blame(fmt::format("{} got other bytes from {}", key, author));
    }
}

void Ledger::bury(RunLedger& ledger, std::uint64_t seq, const Tombstone& tombstone) {
    const auto row = ledger.rows.find(seq);
    if (row == ledger.rows.end()) {
        blame(fmt::format("commit {} was buried before it was written", seq));
    } else if (seq >= ledger.floor() || tombstone.floor > ledger.floor() ||
               tombstone.run != ledger.run || tombstone.seq != seq) {
        blame(fmt::format("commit {} was buried with floor {}, but the log's floor is {}", seq,
                          tombstone.floor, ledger.floor()));
    } else {
        row->second.buried = true;
    }
}

void Ledger::add_commit(RunLedger& ledger, const std::string& prefix, std::uint64_t seq,
                        std::span<const std::byte> bytes, const std::string& author) {
    const auto parsed = parse_commit(as_text(bytes), "a commit");
    if (!parsed) return blame(fmt::format("commit {}: {}", seq, parsed.error().text));
    LedgerRow row{parsed->commit, to_hex(sha256(bytes)), author, false, {}, false, false};
    if (!roots_.empty()) {
        const auto signer =
            check_signature(roots_, "commit", as_bytes(parsed->body), parsed->signature_block);
        if (!signer)
            return blame(fmt::format("{} writes commit {}: {}", author, seq, signer.error().text));
        row.signer = *signer;
    }
    if (const auto old = ledger.rows.find(seq); old != ledger.rows.end() && old->second.lost) {
        return blame(
            fmt::format("{} writes commit {} into the hole that another one left, though "
                        "the log goes on to {}",
                        author, seq, ledger.head()->commit.seq));
    }
    if (row.commit.run != ledger.run || row.commit.seq != seq) {
        return blame(fmt::format("commit {} by {} is of run {}, seq {}", seq, author,
                                 row.commit.run, row.commit.seq));
    }
    check_chain(ledger, row);
    check_writer(ledger, row);
    ledger.rows.insert_or_assign(seq, std::move(row));
    check_objects(prefix, ledger.rows.at(seq));
}

/// Between a commit and the one it was built on there is only what was void to its writer.
void Ledger::step_over(RunLedger& ledger, const LedgerRow& row) {
    const Commit& commit = row.commit;
    for (std::uint64_t seq = commit.previous.seq + 1; seq < commit.seq; ++seq) {
        const auto over = ledger.rows.find(seq);
        if (over == ledger.rows.end()) {
            if (!ledger.void_slots.contains(seq)) {
                blame(fmt::format("commit {} leaves a gap at {}", commit.seq, seq));
            }
            continue;
        }
        if (over->second.signer.serial.value_or(0) >= row.signer.serial.value_or(0)) {
            blame(fmt::format("commit {} steps over commit {}, which counts", commit.seq, seq));
        }
        over->second.abandoned = true;
        // Nor does an epoch count that only such commits were made in.
        const std::uint64_t epoch = over->second.commit.epoch;
        const bool lives = std::ranges::any_of(ledger.rows, [&](const auto& other) {
            return other.second.commit.epoch == epoch && !other.second.abandoned;
        });
        if (!lives) ledger.owners.erase(epoch);
    }
}

void Ledger::check_chain(RunLedger& ledger, const LedgerRow& row) {
    const Commit& commit = row.commit;
    if (commit.makes_state() && bank_.find(commit.state.digest) == nullptr) {
        blame(fmt::format("commit {} makes a state that nobody handed over", commit.seq));
    }
    if (ledger.rows.empty()) return;
    // The first one again, by a writer that met nothing but lapsed ones.
    if (commit.previous.seq == 0) return step_over(ledger, row);
    const auto last = ledger.rows.find(commit.previous.seq);
    if (last == ledger.rows.end() || last->second.abandoned) {
        return blame(fmt::format("commit {} stands on commit {}, which is not of this history",
                                 commit.seq, commit.previous.seq));
    }
    step_over(ledger, row);
    const Commit& before = last->second.commit;
    if (last->second.buried) blame(fmt::format("commit {} follows a tombstone", commit.seq));
    if (commit.previous != CommitRef{last->first, last->second.hash}) {
        blame(fmt::format("commit {} does not name the one before it", commit.seq));
    }
    if (commit.epoch < before.epoch || commit.floor < before.floor) {
        blame(fmt::format("commit {}: epoch or floor goes back", commit.seq));
    }
    if (!commit.makes_state() && commit.state != before.state) {
        blame(fmt::format("commit {} changes the state it did not make", commit.seq));
    }
    if (commit.makes_state() && commit.base && *commit.base != before.state.digest) {
        blame(fmt::format("commit {} has another base than the state before it", commit.seq));
    }
    const CommitRef manifest =
        before.manifest ? CommitRef{before.seq, last->second.hash} : before.manifest_at;
    if (!commit.manifest && commit.manifest_at != manifest) {
        blame(fmt::format("commit {} loses the manifest of commit {}", commit.seq, manifest.seq));
    }
}

void Ledger::check_writer(RunLedger& ledger, const LedgerRow& row) {
    const Commit& commit = row.commit;
    if (commit.kind == CommitKind::kBranch) return;
    if (is_maintenance(commit.kind)) {
        const LedgerRow* last = ledger.head();
        if (last != nullptr && last->commit.epoch != commit.epoch) {
            blame(fmt::format("maintenance begins an epoch with commit {}", commit.seq));
        }
        return;
    }
    const auto [owner, fresh] = ledger.owners.try_emplace(commit.epoch, row.author);
    if (owner->second != row.author) {
        blame(fmt::format("{} writes commit {} with epoch {}, which belongs to {}", row.author,
                          commit.seq, commit.epoch, owner->second));
    }
}

void Ledger::check_file(const std::string& prefix, const StoredFile& file) {
    const std::string holder =
        file.at.empty() ? prefix : resolve_run_path(prefix, file.at).value_or("nowhere");
    for (const StoredPart& part : file.parts) {
        const auto bytes = read_whole(truth_, holder + "/" + part.key, kAnySize);
        if (!bytes) {
            blame(fmt::format("a commit names {}, which is not there", part.key));
        } else if (bytes->size() != part.bytes || to_hex(sha256(*bytes)) != part.sha256) {
            blame(fmt::format("a commit names {}, which is something else", part.key));
        }
    }
}

void Ledger::check_objects(const std::string& prefix, const LedgerRow& row) {
    if (row.commit.delta) check_file(prefix, *row.commit.delta);
    if (!row.commit.manifest) return;
    for (const AnchorEntry& anchor : row.commit.manifest->anchors) {
        for (const StoredFile& file : anchor.files) check_file(prefix, file);
    }
    for (const MergedDelta& merged_delta : row.commit.manifest->merged_deltas)
        check_file(prefix, merged_delta.delta);
}

void Ledger::lose(const std::string& prefix, std::uint64_t seq, bool lost) {
    runs_[prefix].rows.at(seq).lost = lost;
}

void Ledger::removed(const std::string& key) {
    const auto [holder, name] = split_key(key);
    if (name.starts_with(kCommitsPrefix) || name == kRunKey) {
        return blame(fmt::format("{} was removed", key));
    }
    if (!is_data_key(name)) return;
    for (const auto& [prefix, ledger] : runs_) {
        each_needed_file(ledger, [&](const StoredFile& file) {
            const std::string at =
                file.at.empty() ? prefix : resolve_run_path(prefix, file.at).value_or("");
            if (at != holder) return;
            for (const StoredPart& part : file.parts) {
                if (part.key != name) continue;
                blame(fmt::format("{} was removed, but {} needs it (floor {})", key, prefix,
                                  ledger.floor()));
            }
        });
    }
}

std::string Ledger::judge_position(const std::string& prefix, const ReplicaRecord& record) const {
    const auto [epoch, seq, state_seq] = std::tuple(record.epoch, record.seq, record.state_seq);
    const RunLedger* ledger = find(prefix);
    if (seq == 0 && state_seq == 0) return "";
    const auto row = ledger == nullptr ? std::map<std::uint64_t, LedgerRow>::const_iterator()
                                       : ledger->rows.find(seq);
    if (ledger == nullptr || row == ledger->rows.end()) {
        return fmt::format("it stands at commit {}, which was never written", seq);
    }
    if (epoch > row->second.commit.epoch) {
        return fmt::format("it says epoch {} at commit {} of epoch {}", epoch, seq,
                           row->second.commit.epoch);
    }
    if (state_seq == 0) return "";
    const auto made = ledger->rows.find(state_seq);
    if (made == ledger->rows.end() || !made->second.commit.makes_state()) {
        return fmt::format("its state is said to be of commit {}, which made none", state_seq);
    }
    if (made->second.commit.state.digest != record.state) {
        return fmt::format("its state is not that of commit {}", state_seq);
    }
    if (made->second.commit.state.step != record.step) {
        return fmt::format("it calls the state of commit {} step {}, which is step {}", state_seq,
                           record.step, made->second.commit.state.step);
    }
    return "";
}

bool Ledger::may_be_fenced(const std::string& prefix, const std::string& author) const {
    const RunLedger* ledger = find(prefix);
    if (ledger == nullptr || ledger->owners.empty()) return false;
    return ledger->owners.rbegin()->second != author;
}

}  // namespace wisp::sim
