#include "log/lineage.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace {

// Where a lost commit stands in the way, so many others are asked for a way around it.
constexpr int kDetours = 64;

bool is_lost(const Error& error) {
    return error.kind == ErrorKind::kGap || error.kind == ErrorKind::kCorrupt;
}

}  // namespace

Lineage::Lineage(const CommitLog& log, LogEntry head) : log_(&log), head_(std::move(head)) {
    take_in(head_);
}

Result<Lineage> Lineage::of_newest(const CommitLog& log) {
    WISP_ASSIGN(auto head, log.head());
    if (head) return Lineage(log, std::move(*head));
    return fail(ErrorKind::kNotFound,
                fmt::format("nothing was published to {} yet", shown(log.where().url)));
}

/// What a branch's first commit was built on stands in another log.
bool Lineage::is_first(const Commit& commit) const {
    return commit.previous.seq < log_->first_seq();
}

void Lineage::take_in(const LogEntry& entry) {
    Known& own = known_[entry.commit.seq];
    own.hash = entry.hash;
    own.read = true;
    if (!entry.commit.manifest) entries_.insert_or_assign(entry.commit.seq, entry);
    if (is_first(entry.commit)) return;
    const auto note = [&](const CommitRef& ref) {
        if (ref.seq != 0) known_.try_emplace(ref.seq, Known{ref.hash});
    };
    note(entry.commit.previous);
    note(entry.commit.manifest_at);
    for (const CommitRef& ref : entry.commit.ancestors) note(ref);
}

Result<LogEntry> Lineage::fetch(const CommitRef& ref) {
    if (ref.seq == head_.commit.seq) return head_;
    if (const auto at = entries_.find(ref.seq); at != entries_.end()) return at->second;
    auto entry = log_->follow(ref);
    if (entry) {
        take_in(*entry);
    } else if (is_lost(entry.error())) {
        known_[ref.seq].lost = true;
    }
    return entry;
}

Result<std::optional<CommitRef>> Lineage::find(std::uint64_t seq) {
    std::optional<Error> lost;
    for (int detours = 0; detours <= kDetours;) {
        auto at = known_.lower_bound(seq);
        if (at == known_.end()) return std::nullopt;
        if (at->first == seq) return CommitRef{seq, at->second.hash};
        // All that the lowest one names lies below `seq`: history steps over it.
        if (at->second.read) return std::nullopt;
        at = std::find_if(at, known_.end(), [](const auto& known) {
            return !known.second.read && !known.second.lost;
        });
        if (at == known_.end()) break;
        const auto entry = fetch({at->first, at->second.hash});
        if (entry) {
            if (lost) ++detours;
            continue;
        }
        if (!is_lost(entry.error())) return std::unexpected(entry.error());
        if (!lost) lost = entry.error();
        ++detours;
    }
    if (lost) return std::unexpected(std::move(*lost));
    return fail(ErrorKind::kGap,
                fmt::format("no commit that is left of {} leads back to commit {}; restore the "
                            "bucket from a copy, or start over from an anchor",
                            shown(log_->where().url), seq));
}

Result<LogEntry> Lineage::at(std::uint64_t seq) {
    if (seq == head_.commit.seq) return head_;
    WISP_ASSIGN(const auto ref, seq < head_.commit.seq ? find(seq) : std::nullopt);
    if (ref) return fetch(*ref);
    return fail(ErrorKind::kGap,
                fmt::format("the history of {} has no commit {}", shown(log_->where().url), seq));
}

Result<std::optional<LogEntry>> Lineage::before(const LogEntry& entry,
                                                std::optional<std::uint64_t>* overwritten) {
    if (is_first(entry.commit)) return std::nullopt;
    const CommitRef& ref = entry.commit.previous;
    auto found = fetch(ref);
    if (found) return std::move(*found);
    if (found.error().kind != ErrorKind::kUnavailable && ref.seq < head_.commit.floor) {
        WISP_ASSIGN(const Slot slot, log_->read(ref.seq));
        if (slot.kind == Slot::Kind::kBuried) return std::nullopt;
        if (slot.kind == Slot::Kind::kVoid) {
            if (overwritten != nullptr) *overwritten = ref.seq;
            return std::nullopt;
        }
    }
    return std::unexpected(std::move(found).error());
}

Result<std::vector<LogEntry>> Lineage::between(std::uint64_t from, std::uint64_t to) {
    std::vector<LogEntry> found;
    if (to <= from) return found;
    WISP_ASSIGN(LogEntry entry, at(to));
    for (;;) {
        const CommitRef before = entry.commit.previous;
        const bool first = is_first(entry.commit);
        found.push_back(std::move(entry));
        if (first || before.seq <= from) break;
        WISP_ASSIGN(entry, fetch(before));
    }
    std::ranges::reverse(found);
    return found;
}

Result<bool> Lineage::contains(const CommitRef& ref) {
    if (ref.seq == head_.commit.seq) return ref.hash == head_.hash;
    if (ref.seq > head_.commit.seq) return false;
    WISP_ASSIGN(const auto own, find(ref.seq));
    return own && own->hash == ref.hash;
}

}  // namespace wisp
