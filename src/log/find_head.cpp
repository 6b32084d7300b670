// Where the log ends, and whether its end counts: doc/protocol.md section 4.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"
#include "log/commit_log.hpp"
#include "log/run_keys.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kWidestLeap = std::uint64_t{1} << 62;

}  // namespace

/// The commit in a slot; or, where a tombstone names the floor that buried it, the one that stands
/// there. A tombstone that leads to no commit buries nothing.
Result<SlotLook> CommitLog::look_at(std::uint64_t seq) const {
    for (bool led_here = false;; led_here = true) {
        WISP_ASSIGN(Slot slot, read(seq));
        if (slot.entry) return SlotLook{std::move(slot.entry), false, {}};
        if (slot.kind == Slot::Kind::kBuried && slot.buried->floor > seq) {
            seq = slot.buried->floor;
            continue;
        }
        if (slot.kind == Slot::Kind::kAbsent && !led_here) return SlotLook{{}, true, {}};
        if (slot.kind == Slot::Kind::kVoid && !led_here) return SlotLook{{}, false, slot.why};
        return SlotLook{{}, false, Error{ErrorKind::kCorrupt, "its tombstone leads to no commit"}};
    }
}

/// The newest commit that was signed well, lapsed or not. Writers take the first slot that holds
/// nothing that counts, so none below it is empty, however many are void.
Result<std::optional<LogEntry>> CommitLog::newest_sound(std::uint64_t known) const {
    std::optional<LogEntry> found;
    WISP_ASSIGN(const std::uint64_t hint, hinted_seq());
    for (const std::uint64_t start : {std::max(hint, known), std::min(hint, known)}) {
        if (found || start < first_seq()) continue;
        WISP_ASSIGN(SlotLook look, look_at(start));
        found = std::move(look.entry);
    }
    const auto lowest = [&] { return found ? found->commit.seq : first_seq() - 1; };
    for (;;) {
        // Leap while there are commits, then halve: n of them cost log n reads.
        std::uint64_t bound = 0;
        SlotLook beyond;  // at `bound`: no commit
        for (std::uint64_t width = 1;; width = std::min(width * 2, kWidestLeap)) {
            bound = lowest() + width;
            WISP_ASSIGN(beyond, look_at(bound));
            if (!beyond.entry) break;
            found = std::move(beyond.entry);
        }
        while (lowest() + 1 < bound) {
            const std::uint64_t middle = lowest() + (bound - lowest()) / 2;
            WISP_ASSIGN(SlotLook look, look_at(middle));
            if (look.entry) {
                found = std::move(look.entry);
            } else {
                bound = middle;
                beyond = std::move(look);
            }
        }
        // A tombstone led past it.
        if (lowest() >= bound) continue;
        // Void objects may stand between this commit and the next.
        for (std::uint64_t seq = bound; !beyond.entry; ++seq) {
            if (beyond.absent) return found;
            tell_void(seq, beyond.why);
            WISP_ASSIGN(beyond, look_at(seq + 1));
        }
        found = std::move(beyond.entry);
    }
}

/// What lies between a commit and the one that it was built on was void to its writer. Another one
/// that counts, there or below, under a higher serial: this writer was replaced. It may have built
/// on commits of its own since, so older slots are asked too, ever farther below.
Result<bool> CommitLog::is_outranked(const LogEntry& entry, std::int64_t now_ms) const {
    const Commit& commit = entry.commit;
    const auto serial_of = [](const LogEntry& of) { return of.signer.serial.value_or(0); };
    for (std::uint64_t seq = commit.seq - 1; seq > commit.previous.seq && seq >= first_seq();
         --seq) {
        WISP_ASSIGN(const Slot slot, read_at(seq, now_ms));
        if (slot.kind != Slot::Kind::kCommit) continue;
        if (serial_of(*slot.entry) > serial_of(entry)) return true;
        if (serial_of(*slot.entry) < serial_of(entry)) continue;
        return fail(ErrorKind::kForked,
                    fmt::format("commits {} and {} of {} do not know of each other: there are two "
                                "histories; stop and look",
                                seq, commit.seq, shown(where_.url)));
    }
    if (!entry.signer.serial || commit.previous.seq < first_seq()) return false;
    const auto before = follow(commit.previous);
    if (before && serial_of(*before) > serial_of(entry)) return true;
    if (!before && before.error().kind == ErrorKind::kUnavailable) {
        return std::unexpected(before.error());
    }
    for (std::uint64_t width = 2; commit.seq >= first_seq() + width; width *= 2) {
        WISP_ASSIGN(const Slot slot, read_at(commit.seq - width, now_ms));
        if (slot.entry && serial_of(*slot.entry) > serial_of(entry)) return true;
    }
    return false;
}

/// `top` does not count: whether something below it does by itself.
Result<std::optional<LogEntry>> CommitLog::counting_below(const LogEntry& top,
                                                          std::int64_t now_ms) const {
    // A certificate that was replaced before it ended made more than `top`.
    const bool replaced = check_current(top.signer, min_serial_, now_ms).has_value();
    const auto does = [&](const Slot& slot) {
        if (slot.kind != Slot::Kind::kCommit) return false;
        const auto& serial = slot.entry->signer.serial;
        return !replaced || !serial || *serial > top.signer.serial.value_or(0);
    };
    std::optional<LogEntry> found;
    for (std::uint64_t width = 1; !found && top.commit.seq >= first_seq() + width; width *= 2) {
        WISP_ASSIGN(Slot slot, read_at(top.commit.seq - width, now_ms));
        if (does(slot)) found = std::move(slot.entry);
    }
    if (!found) return found;
    for (std::uint64_t seq = found->commit.seq + 1; seq < top.commit.seq; ++seq) {
        WISP_ASSIGN(Slot slot, read_at(seq, now_ms));
        if (does(slot)) found = std::move(slot.entry);
    }
    return found;
}

bool CommitLog::counts(const LogEntry& entry) const {
    return check_current(entry.signer, min_serial_, options_.clock->now_ms()).has_value();
}

Result<LogEnding> CommitLog::find_ending(std::uint64_t known) const {
    LogEnding ending;
    WISP_ASSIGN(auto top, newest_sound(known));
    if (!top) return ending;
    const std::int64_t now_ms = options_.clock->now_ms();
    auto current = check_current(top->signer, min_serial_, now_ms);
    if (current) {
        WISP_ASSIGN(const bool outranked, is_outranked(*top, now_ms));
        if (!outranked) {
            ending.head = std::move(top);
            return ending;
        }
        current =
            fail(ErrorKind::kDenied,
                 fmt::format("commit {} of {} is signed under a certificate that was replaced "
                             "before",
                             top->commit.seq, shown(where_.url)));
    }
    WISP_ASSIGN(ending.head, counting_below(*top, now_ms));
    if (ending.head) tell_void(top->commit.seq, current.error());
    ending.why = current.error();
    ending.lapsed = std::move(top);
    return ending;
}

Result<std::optional<LogEntry>> CommitLog::head(std::uint64_t known) const {
    WISP_ASSIGN(LogEnding ending, find_ending(known));
    if (ending.head || !ending.lapsed) return std::move(ending.head);
    Error why = *ending.why;
    why.text += "; then publish, or send a heartbeat, so that history counts again";
    return std::unexpected(std::move(why));
}

Result<bool> CommitLog::goes_on(std::uint64_t seq, std::uint64_t beyond) const {
    WISP_ASSIGN(const Slot slot, read(beyond));
    if (!slot.entry) return false;
    // Others may have written on since the end was looked for.
    WISP_ASSIGN(const Slot next, read(seq));
    if (next.kind != Slot::Kind::kAbsent) return true;
    return fail(ErrorKind::kGap,
                fmt::format("{} has commit {}, but not commit {}: it was lost; restore it from a "
                            "copy before writing on",
                            shown(where_.url), beyond, seq));
}

/// A commit that was lost makes the log look shorter than it is, and its slot free. What a listing
/// shows beyond it can only hold a writer back.
Result<bool> CommitLog::has_grown(std::uint64_t seq) const {
    constexpr std::size_t kLooked = 16;
    const auto listed =
        where_.store->list(where_.key(kCommitsPrefix), where_.key(commit_key(seq + 1)), kLooked);
    if (!listed) return false;
    for (const ListedObject& object : *listed) {
        const auto beyond = commit_seq_of(object.key.substr(where_.key(kCommitsPrefix).size()));
        if (!beyond) continue;
        WISP_ASSIGN(const bool grown, goes_on(seq + 1, *beyond));
        if (grown) return true;
    }
    return false;
}

Result<std::optional<LogEntry>> CommitLog::head_for(const std::optional<RunSigner>& signer,
                                                    bool take_over) const {
    LogEnding ending;
    std::uint64_t known = 0;
    for (bool grown = true; grown;) {
        WISP_ASSIGN(ending, find_ending(known));
        const auto& last = ending.lapsed ? ending.lapsed : ending.head;
        known = last ? last->commit.seq : first_seq() - 1;
        WISP_ASSIGN(grown, has_grown(known));
    }
    if (ending.head || !ending.lapsed) return std::move(ending.head);
    const bool own = signer && signer->key.public_key().id() == ending.lapsed->signer.key_id;
    if (own || take_over) return std::move(ending.lapsed);
    return fail(ErrorKind::kDenied,
                fmt::format("the newest commit of {} was signed by another key, and {}; take "
                            "the run over to build on it all the same",
                            shown(where_.url), ending.why->text));
}

}  // namespace wisp
