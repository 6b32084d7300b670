#include "follow/history_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {

Result<std::optional<LogEntry>> HistoryCheck::find_mark() const {
    WISP_ASSIGN(Slot own, log.read(at.seq));
    if (own.entry && own.entry->hash == at.commit_hash) return std::move(own.entry);
    if (own.kind == Slot::Kind::kBuried) return std::nullopt;
    if (at.commit_hash.empty() && own.kind != Slot::Kind::kAbsent) return std::nullopt;
    if (accept_rewind) return std::nullopt;
    // A commit that is merely lost is known by the hash that newer ones have of it.
    WISP_ASSIGN(const auto head, log.head(at.seq));
    if (head && head->commit.seq > at.seq) {
        Lineage history(log, *head);
        WISP_TRY(check_descent(history));
        return std::nullopt;
    }
    return fail(ErrorKind::kForked,
                own.kind == Slot::Kind::kAbsent
                    ? fmt::format("{} has seen commit {}, but {} does not have it any more: the "
                                  "bucket was set back; restore it, or pass --accept-rewind",
                                  shown(label), at.seq, shown(log.where().url))
                    : fmt::format("commit {} of {} is not the one that {} has seen: there are two "
                                  "histories; stop and look, or pass --accept-rewind",
                                  at.seq, shown(log.where().url), shown(label)));
}

Result<void> HistoryCheck::check_descent(Lineage& history) const {
    const Commit& head = history.head().commit;
    if (accept_rewind || at.seq == 0) return {};
    if (head.seq < at.seq || head.epoch < at.epoch) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} ends at commit {} of epoch {}, behind commit {} of epoch {} "
                                "that this replica has seen: it was set back; restore it, or pass "
                                "--accept-rewind",
                                shown(log.where().url), head.seq, head.epoch, at.seq, at.epoch));
    }
    if (at.commit_hash.empty() || at.seq < std::max(head.floor, log.first_seq())) return {};
    WISP_ASSIGN(const bool ours, history.contains({at.seq, at.commit_hash}));
    if (ours) return {};
    return fail(ErrorKind::kForked,
                fmt::format("the history of {} does not have commit {} as {} has seen it: there "
                            "are two histories; stop and look, or pass --accept-rewind",
                            shown(log.where().url), at.seq, shown(label)));
}

Result<void> HistoryCheck::check_follows(const LogEntry& next) const {
    const Commit& commit = next.commit;
    if (commit.epoch >= at.epoch) {
        if (at.commit_hash.empty() || commit.previous == CommitRef{at.seq, at.commit_hash}) {
            return {};
        }
        if (commit.previous.seq > at.seq) {
            return fail(ErrorKind::kGap,
                        fmt::format("commit {} of {} was built on commit {}, which cannot be read; "
                                    "restore it from a copy",
                                    commit.seq, shown(log.where().url), commit.previous.seq));
        }
    }
    return fail(ErrorKind::kForked,
                fmt::format("commit {} (epoch {}) of {} does not follow commit {} (epoch {}) that "
                            "this replica has seen: there are two histories; stop and look",
                            commit.seq, commit.epoch, shown(log.where().url), at.seq, at.epoch));
}

Result<bool> HistoryCheck::skips_a_commit() const {
    WISP_ASSIGN(const std::uint64_t hint, log.hinted_seq());
    if (hint <= at.seq + 1) return false;
    WISP_ASSIGN(const Slot slot, log.read(hint));
    return slot.kind == Slot::Kind::kCommit;
}

bool HistoryCheck::is_no_newer(const Result<std::optional<LogEntry>>& head) const {
    if (!head) return head.error().kind == ErrorKind::kDenied;
    return *head && (*head)->commit.seq < at.seq;
}

Result<bool> HistoryCheck::still_has_mark() const {
    WISP_ASSIGN(const Slot own, log.read(at.seq));
    return own.entry && own.entry->hash == at.commit_hash;
}

}  // namespace wisp
