// format.json: what a run is, written once. doc/protocol.md section 2.
//
// The run's identity is the hash of this record, and every commit carries it: nobody can swap the
// record for another without ending the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/delta.hpp"
#include "wisp/result.hpp"
#include "wisp/signing.hpp"

namespace wisp {

struct RunRecord {
    std::string nonce;  // 32 hexadecimal digits, so that no two runs are alike
    std::int64_t created_ms = 0;
    bool exclusive = true;        // false: single-writer mode
    Codec codec = kDefaultCodec;  // compact or swift: of whatever is written into the run
    /// As DiffOptions has it; nothing: by how large the weights are. See slices_of().
    std::optional<unsigned> slices;
    /// Whose signature, or whose certificate's, every commit must carry; none: the run is unsigned.
    /// The run's identity covers them, so that they are as old and as fixed as the run itself.
    std::vector<PublicKey> roots;
    struct Origin {      // of a branch
        std::string at;  // path to the other run
        std::string run;
        std::uint64_t state_seq = 0;
        friend bool operator==(const Origin&, const Origin&) = default;
    };
    std::optional<Origin> origin;
};

/// How many slices the deltas of the run are cut into, for weights of this size.
unsigned slices_of(const RunRecord& record, std::uint64_t weight_bytes);

std::string write_run_record(const RunRecord& record);
/// kCorrupt, kUnsupported.
Result<RunRecord> parse_run_record(std::string_view text, std::string_view label);
/// 32 hexadecimal digits of the hash of the record's text.
std::string run_id_of(std::string_view text);

}  // namespace wisp
