#include "log/commit_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "log/checked_line.hpp"
#include "log/run_keys.hpp"
#include "log/strict_json.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {
namespace {

constexpr int kLooks = 4;
constexpr std::uint64_t kLargestHint = std::uint64_t{1} << 62;

std::string hash_of(std::string_view object) {
    return to_hex(sha256(as_bytes(object)));
}

std::string_view first_line(std::string_view object) {
    return object.substr(0, object.find('\n') + 1);
}

std::string ids_of(const std::vector<PublicKey>& keys) {
    std::string ids;
    for (const PublicKey& key : keys) ids += (ids.empty() ? "" : ", ") + key.id();
    return ids;
}

bool holds_any(const Location& where, std::string_view lead) {
    const auto found = where.store->list(where.key(lead), "", 1);
    return found && !found->empty();
}

/// Only for the message: what else may lie there.
Error no_run_at(const Location& where) {
    if (holds_any(where, kCommitsPrefix)) {
        return {ErrorKind::kNoRun, fmt::format("the run at {} has lost its {}; restore that from "
                                               "a copy, or start a run elsewhere",
                                               shown(where.url), kRunKey)};
    }
    if (holds_any(where, "anchors/step_") || holds_any(where, "deltas/step_")) {
        return {ErrorKind::kNoRun,
                fmt::format("{} is a bucket in TRL's layout, without a log; read it with --layout "
                            "trl of 'wisp follow' and 'wisp pull'",
                            shown(where.url))};
    }
    return {ErrorKind::kNoRun,
            fmt::format("there is no run at {}; check the address, or start one with 'wisp init "
                        "{}'",
                        shown(where.url), printable(where.url))};
}

}  // namespace

CommitLog::CommitLog(const Location& where, const RunOptions& options)
    : where_(where),
      options_(options),
      min_serial_(options.trust.min_serial),
      random_(std::make_shared<Random>(options.seed == 0 ? fresh_seed() : options.seed)) {}

Result<CommitLog> CommitLog::open(const Location& where, const RunOptions& options) {
    CommitLog log(where, options);
    auto bytes = read_whole(*where.store, where.key(kRunKey), limits::kSmallRecordBytes);
    if (!bytes) {
        if (bytes.error().kind != ErrorKind::kNotFound) {
            return std::unexpected(std::move(bytes).error());
        }
        return std::unexpected(no_run_at(where));
    }
    // The run's identity is the hash of every byte: a record with one wrong is another run's.
    if (!check_holds(as_text(*bytes))) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} is damaged: its check does not hold; try again, or restore it "
                                "from a copy",
                                shown(where.key(kRunKey))));
    }
    WISP_ASSIGN(log.record_, parse_run_record(as_text(*bytes), where.key(kRunKey)));
    log.run_ = run_id_of(as_text(*bytes));
    if (!options.expected_run.empty() && options.expected_run != log.run_) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} is run {}, not {}; check the address, or the identity that "
                                "'wisp init' printed",
                                shown(where.url), log.run_, shown(options.expected_run)));
    }
    WISP_TRY(log.load_trust());
    return log;
}

/// Whose word counts is fixed at the run's birth; a reader may narrow it, never widen it.
Result<void> CommitLog::load_trust() {
    const std::vector<PublicKey>& named = options_.trust.keys;
    if (record_.roots.empty()) {
        if (named.empty()) return {};
        return fail(ErrorKind::kDenied,
                    fmt::format("{} is not signed, but --trust was given; start a signed run with "
                                "'wisp init --sign-key', or read without --trust",
                                shown(where_.url)));
    }
    for (const PublicKey& root : record_.roots) {
        if (named.empty() || std::ranges::find(named, root) != named.end()) keys_.push_back(root);
    }
    if (!keys_.empty()) return {};
    return fail(ErrorKind::kDenied,
                fmt::format("{} is signed under key {}, which is not among the trusted; check "
                            "--trust",
                            shown(where_.url), ids_of(record_.roots)));
}

void CommitLog::tell_void(std::uint64_t seq, const std::optional<Error>& why) const {
    if (!told_ || !why) return;
    Error told = *why;
    told.text = fmt::format("slot {} of {} is stepped over: {}", seq, shown(where_.url), why->text);
    told_(seq, told);
}

/// The commit or tombstone as it is written; whether it counts comes after.
Result<Slot> CommitLog::parse_slot(std::uint64_t seq, std::string_view object) const {
    const std::string key = where_.key(commit_key(seq));
    const auto stranger = [&](const std::string& run) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} belongs to run {}, not to {}; two runs share this address, or "
                                "it was overwritten: use one address per run",
                                shown(key), shown(run), run_));
    };
    const auto misplaced = [&](std::uint64_t other) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} holds commit {} of this run; the bucket was tampered with, "
                                "restore it from a copy",
                                shown(key), other));
    };
    if (!check_holds(first_line(object))) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} is not a valid commit: its check does not hold; if fetching it "
                                "again does not help, the run's log is damaged",
                                shown(key)));
    }
    Slot slot;
    if (const auto tombstone = parse_tombstone(object)) {
        if (tombstone->run != run_) return stranger(tombstone->run);
        if (tombstone->seq != seq) return misplaced(tombstone->seq);
        slot.kind = Slot::Kind::kBuried;
        slot.buried = tombstone;
        return slot;
    }
    WISP_ASSIGN(ParsedCommit parsed, parse_commit(object, key));
    if (parsed.commit.run != run_) return stranger(parsed.commit.run);
    if (parsed.commit.seq != seq) return misplaced(parsed.commit.seq);
    LogEntry entry{std::move(parsed.commit), hash_of(object), {}};
    if (is_signed()) {
        auto signer =
            check_signature(record_.roots, "commit", as_bytes(parsed.body), parsed.signature_block);
        if (signer) entry.signer = std::move(*signer);
        const bool named = !options_.trust.keys.empty() || !options_.expected_run.empty();
        if (signer && !named) entry.signer.how = Signer::How::kUnchecked;
    }
    slot.kind = Slot::Kind::kCommit;
    slot.entry = std::move(entry);
    return slot;
}

Result<Slot> CommitLog::judge(std::uint64_t seq, std::string_view object,
                              std::int64_t now_ms) const {
    if (!is_signed()) return parse_slot(seq, object);
    const auto as_void = [](Error why) {
        Slot slot;
        slot.kind = Slot::Kind::kVoid;
        slot.why = std::move(why);
        return slot;
    };
    const std::string_view body = first_line(object);
    const bool is_tombstone = parse_tombstone(object).has_value();
    if (!is_tombstone) {
        // Who wrote it comes before what it says.
        auto signer = check_signature(keys_, "commit", as_bytes(body), object.substr(body.size()));
        if (!signer) return as_void(std::move(signer).error());
    }
    auto slot = parse_slot(seq, object);
    if (!slot) {
        // What a trusted writer of a newer wisp says is no stranger's nonsense.
        if (slot.error().kind == ErrorKind::kUnsupported) return slot;
        return as_void(std::move(slot).error());
    }
    if (!slot->entry) return slot;
    if (auto current = check_current(slot->entry->signer, min_serial_, now_ms); !current) {
        slot->kind = Slot::Kind::kLapsed;
        slot->why = std::move(current).error();
    }
    return slot;
}

Result<Slot> CommitLog::read(std::uint64_t seq) const {
    return read_at(seq, options_.clock->now_ms());
}

Result<Slot> CommitLog::read_at(std::uint64_t seq, std::int64_t now_ms) const {
    const std::string key = where_.key(commit_key(seq));
    std::vector<std::byte> seen;
    bool seen_too_long = false;
    for (int look = 0;; ++look) {
        // However many void objects there are, the caller can stop.
        if (stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked");
        auto object = read_whole(*where_.store, key, limits::kCommitBytes);
        if (!object && object.error().kind == ErrorKind::kNotFound) return Slot{};
        const bool too_long = !object && object.error().kind == ErrorKind::kCorrupt;
        if (!object && (!too_long || !is_signed())) return std::unexpected(object.error());
        Result<Slot> slot = Slot{Slot::Kind::kVoid, {}, {}, too_long ? object.error() : Error{}};
        if (object) slot = judge(seq, as_text(*object), now_ms);
        const bool fine = slot && slot->kind != Slot::Kind::kVoid;
        const bool final = !slot && slot.error().kind != ErrorKind::kCorrupt;
        if (fine || final) return slot;
        // A cut or flipped reply differs from the next one; a bad object stays as it is.
        const bool again = look > 0 && too_long == seen_too_long && (too_long || seen == *object);
        if (again || look == kLooks) return slot;
        seen_too_long = too_long;
        if (object) seen = std::move(*object);
    }
}

Result<Slot> CommitLog::next(std::uint64_t seq) const {
    for (;;) {
        WISP_ASSIGN(Slot slot, read(++seq));
        if (slot.kind != Slot::Kind::kVoid) return slot;
        tell_void(seq, slot.why);
    }
}

Result<std::optional<LogEntry>> CommitLog::peek(std::uint64_t seq) const {
    auto object = read_whole(*where_.store, where_.key(commit_key(seq)), limits::kCommitBytes);
    if (!object) {
        const ErrorKind kind = object.error().kind;
        if (kind == ErrorKind::kNotFound || kind == ErrorKind::kCorrupt) return std::nullopt;
        return std::unexpected(std::move(object).error());
    }
    auto slot = parse_slot(seq, as_text(*object));
    return slot ? std::move(slot->entry) : std::nullopt;
}

Result<LogEntry> CommitLog::follow(const CommitRef& ref) const {
    const std::string key = where_.key(commit_key(ref.seq));
    const auto gone = [&](std::string_view how) {
        return fail(ErrorKind::kGap,
                    fmt::format("commit {} of {} is {}; start over from an anchor, or restore it "
                                "from a copy",
                                ref.seq, shown(where_.url), how));
    };
    std::vector<std::byte> seen;
    for (int look = 0;; ++look) {
        auto object = read_whole(*where_.store, key, limits::kCommitBytes);
        if (!object && object.error().kind == ErrorKind::kNotFound) return gone("missing");
        if (!object && object.error().kind != ErrorKind::kCorrupt) {
            return std::unexpected(std::move(object).error());
        }
        if (object && hash_of(as_text(*object)) == ref.hash) {
            WISP_ASSIGN(Slot slot, parse_slot(ref.seq, as_text(*object)));
            if (slot.entry) return std::move(*slot.entry);
        }
        if (object && parse_tombstone(as_text(*object))) return gone("below the floor");
        // A cut or flipped reply differs from the next one; a rewritten commit stays as it is.
        const bool again = look > 0 && object && seen == *object;
        if (!again && look < kLooks) {
            if (object) seen = std::move(*object);
            continue;
        }
        if (!again || !check_holds(first_line(as_text(*object)))) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("{} is damaged; restore it from a copy", shown(key)));
        }
        return fail(ErrorKind::kForked,
                    fmt::format("{} is not the commit that newer ones were built on: the log was "
                                "rewritten; stop and look",
                                shown(key)));
    }
}

Result<Manifest> CommitLog::manifest_of(const LogEntry& entry) const {
    if (entry.commit.manifest) return *entry.commit.manifest;
    if (entry.commit.manifest_at.seq == 0) return Manifest{};
    WISP_ASSIGN(LogEntry holder, follow(entry.commit.manifest_at));
    if (holder.commit.manifest) return std::move(*holder.commit.manifest);
    return fail(
        ErrorKind::kCorrupt,
        fmt::format("commit {} of {} names commit {} for its manifest, which has none; the log "
                    "is damaged",
                    entry.commit.seq, shown(where_.url), entry.commit.manifest_at.seq));
}

Result<std::uint64_t> CommitLog::hinted_seq() const {
    const std::string key = where_.key(kLatestKey);
    auto bytes = read_whole(*where_.store, key, limits::kSmallRecordBytes);
    if (!bytes && bytes.error().kind == ErrorKind::kCorrupt) {
        bytes = read_whole(*where_.store, key, limits::kSmallRecordBytes);
    }
    if (!bytes && bytes.error().kind == ErrorKind::kUnavailable) {
        return std::unexpected(bytes.error());
    }
    const auto json = parse_strict_json(bytes ? as_text(*bytes) : "");
    if (!json) return std::uint64_t{0};
    std::string problem;
    const std::uint64_t seq = FieldReader(*json, problem).number("seq");
    return seq < kLargestHint ? seq : 0;
}

void CommitLog::hint_at(std::uint64_t seq) const {
    const nlohmann::json json = {{"wisp", "latest"}, {"seq", seq}};
    // A hint that is lost or late costs its readers a few requests, nothing else.
    (void)where_.store->put(where_.key(kLatestKey), as_bytes(json.dump()));
}

Result<void> CommitLog::bury(std::uint64_t seq, std::uint64_t floor) {
    const std::string object = write_tombstone({run_, seq, floor});
    return where_.store->put(where_.key(commit_key(seq)), as_bytes(object));
}

std::string CommitLog::random_hex(std::size_t bytes) {
    std::string raw;
    while (raw.size() < bytes) {
        const std::uint64_t word = random_->next();
        raw.append(reinterpret_cast<const char*>(&word),
                   std::min(sizeof(word), bytes - raw.size()));
    }
    return to_hex(std::string_view(raw));
}

}  // namespace wisp
