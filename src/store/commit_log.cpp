#include "store/commit_log.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "format/checked_line.hpp"
#include "format/run_keys.hpp"
#include "format/strict_json.hpp"
#include "wisp/printable.hpp"

namespace wisp {
namespace {

constexpr int kDoubtfulTries = 4;
constexpr std::uint64_t kLargestHint = std::uint64_t{1} << 62;

std::string hash_of(std::string_view object) {
    return to_hex(sha256(as_bytes(object)));
}

}  // namespace

CommitLog::CommitLog(const Location& where, const RunOptions& options)
    : where_(where),
      options_(options),
      random_(std::make_shared<Random>(options.seed == 0 ? fresh_seed() : options.seed)) {}

Result<CommitLog> CommitLog::open(const Location& where, const RunOptions& options) {
    CommitLog log(where, options);
    auto bytes = read_whole(*where.store, where.key(kRunKey), limits::kSmallRecordBytes);
    if (!bytes) {
        if (bytes.error().kind != ErrorKind::kNotFound) {
            return std::unexpected(std::move(bytes).error());
        }
        return fail(ErrorKind::kNoRun, fmt::format("there is no run at {}; check the address, or "
                                                   "start one with 'wisp init {}'",
                                                   shown(where.url), printable(where.url)));
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
    return log;
}

Result<Slot> CommitLog::parse_slot(std::uint64_t seq, std::string_view object,
                                   Judged judged) const {
    const std::string key = where_.key(commit_key(seq));
    const auto stranger = [&](const std::string& run) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} belongs to run {}, not to {}; two runs share this address, or "
                                "it was overwritten: use one address per run",
                                shown(key), shown(run), run_));
    };
    Slot slot;
    if (!check_holds(object.substr(0, object.find('\n') + 1))) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} is not a valid commit: its check does not hold; if fetching it "
                                "again does not help, the run's log is damaged",
                                shown(key)));
    }
    if (const auto tombstone = parse_tombstone(object)) {
        if (tombstone->run != run_) return stranger(tombstone->run);
        slot.kind = Slot::Kind::kBuried;
        slot.floor = tombstone->floor;
        return slot;
    }
    WISP_ASSIGN(ParsedCommit parsed, parse_commit(object, key));
    // Who wrote it comes before what it says.
    const std::int64_t when =
        judged == Judged::kNow ? options_.clock->now_ms() : parsed.commit.time_ms;
    WISP_ASSIGN(Signer signer, check_signature(options_.trust, "commit", as_bytes(parsed.body),
                                               parsed.signature_block, when));
    if (parsed.commit.run != run_) return stranger(parsed.commit.run);
    if (parsed.commit.seq != seq) {
        return fail(ErrorKind::kForked,
                    fmt::format("{} holds commit {} of this run; the bucket was tampered with, "
                                "restore it from a copy",
                                shown(key), parsed.commit.seq));
    }
    slot.kind = Slot::Kind::kCommit;
    slot.entry = LogEntry{std::move(parsed.commit), hash_of(object), std::move(signer)};
    return slot;
}

Result<Slot> CommitLog::read(std::uint64_t seq, Judged judged) const {
    const std::string key = where_.key(commit_key(seq));
    for (int attempt = 0;; ++attempt) {
        const auto object = read_whole(*where_.store, key, limits::kCommitBytes);
        if (!object) {
            if (object.error().kind == ErrorKind::kNotFound) return Slot{};
            return std::unexpected(object.error());
        }
        auto slot = parse_slot(seq, as_text(*object), judged);
        // A cut or flipped reply is worth a second look; a bad object stays bad.
        if (slot || attempt == 1) return slot;
        const ErrorKind kind = slot.error().kind;
        if (kind != ErrorKind::kCorrupt && kind != ErrorKind::kDenied) return slot;
    }
}

Result<LogEntry> CommitLog::require(std::uint64_t seq) const {
    WISP_ASSIGN(Slot slot, read(seq, Judged::kThen));
    if (slot.entry) return std::move(*slot.entry);
    return fail(
        ErrorKind::kGap,
        fmt::format("commit {} of {} is {}; start over from an anchor", seq, shown(where_.url),
                    slot.kind == Slot::Kind::kBuried ? "below the floor" : "missing"));
}

Result<std::uint64_t> CommitLog::hinted_seq() const {
    const auto bytes = read_whole(*where_.store, where_.key(kLatestKey), limits::kSmallRecordBytes);
    if (!bytes) return std::uint64_t{0};
    const auto json = parse_strict_json(as_text(*bytes));
    if (!json) return std::uint64_t{0};
    std::string problem;
    const std::uint64_t seq = FieldReader(*json, problem).number("seq");
    return seq < kLargestHint ? seq : 0;
}

Result<std::optional<LogEntry>> CommitLog::head(std::uint64_t known) const {
    WISP_ASSIGN(const std::uint64_t hint, hinted_seq());
    std::uint64_t lowest = std::max({known, hint, first_seq() - 1});
    std::optional<LogEntry> found;
    if (lowest >= first_seq()) {
        WISP_ASSIGN(Slot slot, read(lowest));
        if (slot.kind == Slot::Kind::kAbsent) lowest = first_seq() - 1;
        found = std::move(slot.entry);
    }
    const auto exists = [&](std::uint64_t seq) -> Result<bool> {
        const auto info = where_.store->head(where_.key(commit_key(seq)));
        if (info) return true;
        if (info.error().kind == ErrorKind::kNotFound) return false;
        return std::unexpected(info.error());
    };
    for (;;) {
        // Slots are contiguous: leap until one is absent, then halve.
        std::uint64_t width = 1;
        std::uint64_t absent = 0;
        for (;;) {
            WISP_ASSIGN(const bool there, exists(lowest + width));
            if (!there) {
                absent = lowest + width;
                break;
            }
            lowest += width;
            found.reset();
            if (width < kLargestHint) width *= 2;
        }
        while (absent - lowest > 1) {
            const std::uint64_t middle = lowest + (absent - lowest) / 2;
            WISP_ASSIGN(const bool there, exists(middle));
            (there ? lowest : absent) = middle;
            if (there) found.reset();
        }
        if (found || lowest < first_seq()) return found;
        WISP_ASSIGN(Slot newest, read(lowest));
        if (newest.entry) return std::move(newest.entry);
        if (newest.kind == Slot::Kind::kAbsent) {
            return fail(ErrorKind::kGap,
                        fmt::format("the newest commit of {} cannot be read; try again",
                                    shown(where_.url)));
        }
        // Buried since it was the newest: the log has gone on.
    }
}

Result<RoadMap> CommitLog::map_of(const LogEntry& entry) const {
    if (entry.commit.map) return *entry.commit.map;
    if (entry.commit.map_seq == 0) return RoadMap{};
    WISP_ASSIGN(LogEntry holder, require(entry.commit.map_seq));
    if (holder.commit.map) return std::move(*holder.commit.map);
    return fail(ErrorKind::kCorrupt,
                fmt::format("commit {} of {} names commit {} for its map, which has none; the log "
                            "is damaged",
                            entry.commit.seq, shown(where_.url), entry.commit.map_seq));
}

Result<CommitLog::Appended> CommitLog::append(Commit draft, const std::optional<LogEntry>& head,
                                              const std::optional<RunSigner>& signer) {
    draft.run = run_;
    draft.seq = head ? head->commit.seq + 1 : first_seq();
    if (head) draft.previous = head->hash;
    draft.nonce = random_hex(16);
    draft.time_ms = options_.clock->now_ms();
    std::string object = write_commit(draft);
    if (signer) {
        WISP_ASSIGN(const std::string block, write_signature_block(signer->key, signer->certificate,
                                                                   "commit", as_bytes(object)));
        object += block;
    }
    if (object.size() > limits::kCommitBytes) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("commit {} of {} would be larger than 1 MiB: too many anchors or "
                                "merged deltas are kept; run 'wisp retain'",
                                draft.seq, shown(where_.url)));
    }
    const auto created = where_.store->create(where_.key(commit_key(draft.seq)), as_bytes(object));
    if (created && *created == Created::kNew && record_.exclusive) {
        WISP_ASSIGN(Slot slot, parse_slot(draft.seq, object, Judged::kThen));
        hint_at(draft.seq);
        return Appended{true, std::move(*slot.entry)};
    }
    if (!created && created.error().kind != ErrorKind::kUnavailable) {
        return std::unexpected(created.error());
    }
    return settle(draft.seq, object,
                  created ? Error{ErrorKind::kUnavailable,
                                  fmt::format("{} is taken but cannot be read; try again",
                                              shown(where_.key(commit_key(draft.seq))))}
                          : created.error());
}

/// An answer that did not come, or "already there", may be one's own success: the object tells.
Result<CommitLog::Appended> CommitLog::settle(std::uint64_t seq, const std::string& object,
                                              const Error& doubt) const {
    const std::string key = where_.key(commit_key(seq));
    for (int attempt = 0; attempt < kDoubtfulTries; ++attempt) {
        const auto there = read_whole(*where_.store, key, limits::kCommitBytes);
        if (there) {
            const bool ours = as_text(*there) == object;
            auto slot = parse_slot(seq, as_text(*there), Judged::kThen);
            if (slot && slot->entry) {
                if (ours) hint_at(seq);
                return Appended{ours, std::move(*slot->entry)};
            }
            if (slot && slot->kind == Slot::Kind::kBuried) {
                return fail(ErrorKind::kFenced,
                            fmt::format("commit {} of {} was written and given up long ago: this "
                                        "writer slept; open the run again",
                                        seq, shown(where_.url)));
            }
            if (slot.error().kind != ErrorKind::kCorrupt) {
                return std::unexpected(std::move(slot).error());
            }
        } else if (there.error().kind == ErrorKind::kNotFound) {
            // The same bytes again: whichever of the two arrives, it is the same commit.
            (void)where_.store->create(key, as_bytes(object));
        }
    }
    return std::unexpected(doubt);
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
