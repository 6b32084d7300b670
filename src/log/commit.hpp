// One entry of a run's log: doc/protocol.md section 3.
//
//   object := body "\n" signature*        body: one line of JSON; signature: see wisp/trust.hpp
//
// A commit names by hash everything it makes true, and the commit before it by the hash of that
// object's bytes. `seq` rises by one; a state is named by the seq of the commit that made it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "log/stored_file.hpp"
#include "wisp/result.hpp"
#include "wisp/run.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// A state of the weights as the log sees it.
struct StateName {
    std::uint64_t seq = 0;  // of the commit that made it; 0: none yet
    std::uint64_t step = 0;
    StateDigest digest;
    std::uint64_t chain_id = 0;                // states of one chain are joined by single deltas
    std::uint64_t cumulative_delta_bytes = 0;  // bytes of all single deltas up to here
    std::uint64_t state_index = 0;             // how many states there were up to here
    friend bool operator==(const StateName&, const StateName&) = default;
};

/// A whole state: its files, or a delta from a checkpoint everybody has; or, so that hosts can
/// fetch parts of it, a sliced delta from zeros and the headers of the files that it fills.
struct AnchorEntry {
    StateName state;
    std::string schema;
    std::vector<StoredFile> files;
    std::string base_name;  // of the public checkpoint, when the anchor is a delta from it
    std::optional<StateDigest> base;
    bool sliced = false;  // the file without a name is the delta; of `*.safetensors` only headers
    std::uint64_t bytes() const;
    friend bool operator==(const AnchorEntry&, const AnchorEntry&) = default;
};

/// A delta that spans several states.
struct MergedDelta {
    StateName from;
    StateName to;
    StoredFile delta;
    friend bool operator==(const MergedDelta&, const MergedDelta&) = default;
};

/// What a replica can start from and take short cuts along.
struct Manifest {
    std::vector<AnchorEntry> anchors;        // ascending by seq
    std::vector<MergedDelta> merged_deltas;  // ascending by from, then to
    friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Another commit of the log: its slot, and the SHA-256 of its bytes.
struct CommitRef {
    std::uint64_t seq = 0;  // 0: none
    std::string hash;
    friend bool operator==(const CommitRef&, const CommitRef&) = default;
};

struct Commit {
    std::string run;
    std::uint64_t seq = 0;
    std::uint64_t epoch = 0;
    CommitKind kind = CommitKind::kDelta;
    CommitRef previous;                // the commit before; none: it is the first
    std::vector<CommitRef> ancestors;  // ever older ones, see ancestors_after(); newest first
    std::string nonce;                 // tells one's own write from a stranger's
    std::string writer;                // "host:pid", for people
    std::string owner;  // of the epoch: 32 digits that one writer keeps; maintenance copies it
    std::int64_t time_ms = 0;
    std::int64_t expires_ms = 0;  // 0: never
    StateName state;              // where the run stands after this commit
    std::string schema;
    std::uint64_t total_elements = 0;
    std::uint64_t changed_elements = 0;
    std::optional<StateDigest> base;           // of a delta
    std::optional<StoredFile> delta;           // absent when nothing changed
    std::optional<std::uint64_t> rewind_from;  // the step that was left behind
    std::uint64_t floor = 0;                   // states below it may be gone
    std::uint64_t anchor_seq = 0;              // of the newest anchor's state
    CommitRef manifest_at;  // the newest commit before this one that carries a manifest
    std::optional<Manifest> manifest;
    /// Whether this commit, rather than one before it, made the state.
    bool makes_state() const { return state.seq == seq; }
};

/// What the commit in slot `seq`, built on `parent`, names besides its parent: for each k the
/// newest commit whose slot, divided by 16^k, is lower than its own. So a chain of any length is
/// gone down in a few reads, each vouched for by the one before, and one lost commit seldom breaks
/// it.
std::vector<CommitRef> ancestors_after(const Commit& parent, const std::string& parent_hash,
                                       std::uint64_t seq);

/// The body, one line with its newline.
std::string write_commit(const Commit& commit);
/// `object` may end in a signature block, which is returned apart. kCorrupt, kUnsupported.
struct ParsedCommit {
    Commit commit;
    std::string_view body;             // what is signed
    std::string_view signature_block;  // empty when unsigned
};
Result<ParsedCommit> parse_commit(std::string_view object, std::string_view label);

}  // namespace wisp
