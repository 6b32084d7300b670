// Taking the next slot: races, doubts, and what stands in the way. doc/protocol.md section 5.
#include <fmt/format.h>

#include "base/limits.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "log/commit_log.hpp"
#include "log/run_keys.hpp"

namespace wisp {
namespace {

constexpr int kDoubtfulTries = 8;
// Between two looks at a slot, doubled each time: 1.3 seconds in all.
constexpr Milliseconds kFirstPause(10);
// A writer that has not looked at the log for so long asks whether it has gone on without it.
constexpr std::int64_t kFreshMs = 10'000;

}  // namespace

/// Readers are asked before they are written to: what they would not believe is not created.
Result<std::string> CommitLog::write_object(const Commit& commit,
                                            const std::optional<RunSigner>& signer) const {
    if (is_signed() && !signer) {
        return fail(ErrorKind::kDenied,
                    fmt::format("{} is signed, and so must be all that is written to it; pass "
                                "--sign-key",
                                shown(where_.url)));
    }
    if (!is_signed() && signer) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} was started without keys, and signing its commits would prove "
                                "nothing; start a signed run with 'wisp init --sign-key'",
                                shown(where_.url)));
    }
    std::string object = write_commit(commit);
    if (signer) {
        WISP_ASSIGN(const std::string block,
                    write_signature_block(signer->key, signer->current_certificate(), "commit",
                                          as_bytes(object)));
        object += block;
    }
    if (object.size() > limits::kCommitBytes) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("commit {} of {} would be larger than 1 MiB: too many anchors or "
                                "merged deltas are kept; run 'wisp retain'",
                                commit.seq, shown(where_.url)));
    }
    WISP_ASSIGN(const Slot own, judge(commit.seq, object, options_.clock->now_ms()));
    if (own.kind != Slot::Kind::kCommit) return std::unexpected(*own.why);
    return object;
}

Result<CommitLog::Appended> CommitLog::append(const Draft& draft,
                                              const std::optional<LogEntry>& head,
                                              const std::optional<RunSigner>& signer) {
    // A commit signed under a certificate that was replaced since is stepped over.
    if (head) require_serial(head->signer.serial.value_or(0));
    // A root's own signature has no serial: the run's is that of older commits.
    const bool unknown = head && !head->signer.serial && signer && signer->certificate;
    for (std::uint64_t width = 1; unknown && head->commit.seq >= first_seq() + width; width *= 2) {
        WISP_ASSIGN(const Slot slot, read(head->commit.seq - width));
        if (slot.entry) require_serial(slot.entry->signer.serial.value_or(0));
    }
    // As long as the head has lapsed with its certificate, so has what was honestly built on it.
    HeadLook look{options_.clock->now_ms()};
    look.lapsed = head && !check_current(head->signer, min_serial_, look.now_ms);
    for (std::uint64_t seq = head ? head->commit.seq + 1 : first_seq();; ++seq) {
        WISP_TRY(check_not_behind(seq));
        Commit commit = draft(seq);
        commit.run = run_;
        commit.seq = seq;
        commit.nonce = random_hex(16);
        commit.time_ms = options_.clock->now_ms();
        if (head) {
            commit.previous = head->ref();
            commit.ancestors = ancestors_after(head->commit, head->hash, seq);
            if (!commit.manifest)
                commit.manifest_at = head->commit.manifest ? head->ref() : head->commit.manifest_at;
        }
        WISP_ASSIGN(const std::string object, write_object(commit, signer));
        // Whatever fails from here on leaves open how far the log goes.
        looked_ms_ = 0;
        WISP_ASSIGN(auto taken, take_slot(seq, object, look));
        looked_ms_ = options_.clock->now_ms();
        if (!taken) continue;
        return std::move(*taken);
    }
}

/// A slot may be free because its commit was lost: who slept meanwhile must not take it.
Result<void> CommitLog::check_not_behind(std::uint64_t seq) {
    const std::int64_t now = options_.clock->now_ms();
    if (now - looked_ms_ < kFreshMs && now >= looked_ms_) return {};
    WISP_ASSIGN(const std::uint64_t hint, hinted_seq());
    if (hint > seq) WISP_TRY(goes_on(seq, hint));
    looked_ms_ = now;
    return {};
}

Result<std::optional<CommitLog::Appended>> CommitLog::take_slot(std::uint64_t seq,
                                                                const std::string& object,
                                                                const HeadLook& head) const {
    const std::string key = where_.key(commit_key(seq));
    const auto created = where_.store->create(key, as_bytes(object));
    if (created && *created == Created::kNew && record_.exclusive) {
        WISP_ASSIGN(Slot slot, parse_slot(seq, object));
        hint_at(seq);
        return Appended{true, std::move(*slot.entry)};
    }
    if (!created && created.error().kind != ErrorKind::kUnavailable) {
        return std::unexpected(created.error());
    }
    const bool is_taken = created && *created == Created::kAlreadyThere;
    const Error unread{ErrorKind::kUnavailable,
                       fmt::format("{} is taken but cannot be read; try again", shown(key))};
    return resolve(seq, object, is_taken, created ? unread : created.error(), head);
}

/// Whether a tombstone stands where there was a commit. Anybody may have put it there; but what was
/// committed above it was built on that commit, or stepped over it.
Result<bool> CommitLog::was_given_up(std::uint64_t seq) const {
    WISP_ASSIGN(SlotLook above, look_at(seq));
    if (!above.entry) return false;
    std::uint64_t below = above.entry->commit.previous.seq;
    while (below > seq) {
        WISP_ASSIGN(const Slot slot, read(below));
        if (!slot.entry) return true;  // given up with it
        below = slot.entry->commit.previous.seq;
    }
    return below == seq;
}

/// An answer that did not come, or "already there", may be one's own success: the object tells.
Result<std::optional<CommitLog::Appended>> CommitLog::resolve(std::uint64_t seq,
                                                              const std::string& object,
                                                              bool is_taken, const Error& doubt,
                                                              const HeadLook& head) const {
    const std::string hash = to_hex(sha256(as_bytes(object)));
    for (int attempt = 0; attempt < kDoubtfulTries; ++attempt) {
        // A bucket may say "already there" of what another writer is about to finish.
        if (attempt > 0) options_.clock->sleep_for(kFirstPause * (1 << (attempt - 1)));
        auto slot = read_at(seq, head.now_ms);
        if (!slot) {
            const ErrorKind kind = slot.error().kind;
            if (kind == ErrorKind::kCorrupt || kind == ErrorKind::kUnavailable) continue;
            return std::unexpected(std::move(slot).error());
        }
        if (slot->kind == Slot::Kind::kAbsent) {
            // What was there and is not any more was lost, and leaves a hole. Else the same bytes
            // again: whichever of the two arrives, it is the same commit.
            if (!is_taken)
                (void)where_.store->create(where_.key(commit_key(seq)), as_bytes(object));
            continue;
        }
        const bool ours = slot->entry && slot->entry->hash == hash;
        if (ours) hint_at(seq);
        if (ours || slot->kind == Slot::Kind::kCommit ||
            (slot->kind == Slot::Kind::kLapsed && head.lapsed)) {
            return Appended{ours, std::move(*slot->entry)};
        }
        if (slot->kind == Slot::Kind::kBuried) {
            WISP_ASSIGN(const bool given_up, was_given_up(seq));
            if (given_up) {
                return fail(ErrorKind::kFenced,
                            fmt::format("commit {} of {} was written and given up long ago: this "
                                        "writer slept; open the run again",
                                        seq, shown(where_.url)));
            }
        }
        tell_void(seq, slot->why);
        return std::nullopt;
    }
    return std::unexpected(doubt);
}

}  // namespace wisp
