// What a slot of the log can hold, as CommitLog judges it: doc/protocol.md section 4.
#pragma once

#include <optional>
#include <string>

#include "log/commit.hpp"
#include "log/tombstone.hpp"
#include "wisp/trust.hpp"

namespace wisp {

/// A commit that was read, checked and hashed.
struct LogEntry {
    Commit commit;
    std::string hash;
    Signer signer;
    CommitRef ref() const { return {commit.seq, hash}; }
};

/// What lies in a slot, judged by itself and now.
struct Slot {
    enum class Kind {
        kAbsent,
        kCommit,  // counts
        kLapsed,  // signed well, but under a certificate that has ended or was revoked: counts if a
                  // newer commit that counts is built on it
        kBuried,  // a tombstone
        kVoid,  // of a signed run: no trusted key vouches for it; readers and writers step over it
    };
    Kind kind = Kind::kAbsent;
    std::optional<LogEntry> entry;    // of kCommit and kLapsed
    std::optional<Tombstone> buried;  // of kBuried
    std::optional<Error> why;         // of kLapsed and kVoid
};

/// A slot on the way to the end of the log.
struct SlotLook {
    std::optional<LogEntry> entry;  // signed well, lapsed or not
    bool absent = false;
    std::optional<Error> why;  // there is something, and it is no commit
};

struct LogEnding {
    std::optional<LogEntry> head;    // counts
    std::optional<LogEntry> lapsed;  // newer, and does not
    std::optional<Error> why;
};

/// When a writer looked at the head that it builds on, and whether that had lapsed by then.
struct HeadLook {
    std::int64_t now_ms = 0;
    bool lapsed = false;
};

}  // namespace wisp
