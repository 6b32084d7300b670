// The verbs that write: diff, apply, merge.
//
// A delta is one safetensors file that turns checkpoint A into checkpoint B, bit for bit. Output
// gets its name when it is complete and on disk; on failure nothing is left behind. `threads` 0
// means one per core. Failure kinds: kInvalid (inputs do not fit together), kCorrupt (bytes are not
// what they say), kWrongBase, kUnsupported, kNoSpace, kNotFound, kDenied.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "wisp/checkpoint.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// Compact is the smallest. Swift costs what changed, not what there is: its positions need no
/// base. Plain and gap are TRL's.
enum class Codec { kCompact, kPlain, kGap, kSwift };
/// Compact and swift: coded blocks in wisp's own container, which TRL does not read.
constexpr bool holds_blocks(Codec codec) {
    return codec == Codec::kCompact || codec == Codec::kSwift;
}
/// Of a run that does not say: it brings a step into service earlier (doc/codecs.md).
inline constexpr Codec kDefaultCodec = Codec::kSwift;
std::string_view name_of(Codec codec);
std::optional<Codec> parse_codec(std::string_view name);

struct DiffOptions {
    Codec codec = Codec::kCompact;
    /// Into how many slices a swift delta is cut, so that a host that serves a part of the tensors
    /// can fetch that part alone; at most 64. 0: not at all, which is a little smaller.
    unsigned slices = 0;
    unsigned threads = 0;
    /// Written into the delta. 0 if absent; a merged delta takes that of its last.
    std::optional<std::uint64_t> step;
    Progress progress;
    std::stop_token stop = {};  // ends it early: wisp/control.hpp
};

struct DiffReport {
    std::uint64_t step = 0;
    std::uint64_t total_elements = 0;
    std::uint64_t changed_elements = 0;
    std::uint64_t changed_tensors = 0;
    std::uint64_t checkpoint_bytes = 0;
    std::uint64_t payload_bytes = 0;  // the coded streams alone
    std::uint64_t file_bytes = 0;
    StateDigest base;
    StateDigest result;
};

Result<DiffReport> diff(const Checkpoint& old_state, const Checkpoint& new_state,
                        const std::filesystem::path& delta, const DiffOptions& options = {});

/// The same between weights wherever they lie. kInvalid when their schemas differ.
Result<DiffReport> diff(const Weights& old_state, const Weights& new_state,
                        const std::filesystem::path& delta, const DiffOptions& options = {});

/// Several consecutive deltas, the first standing on `base`, into one.
Result<DiffReport> merge(const Checkpoint& base, const std::vector<std::filesystem::path>& deltas,
                         const std::filesystem::path& merged, const DiffOptions& options = {});

enum class Recovery {
    kNone,
    kFinished,  // an interrupted apply was completed from its journal
    kUndone,    // an interrupted apply had not begun to write; its journal was dropped
};

struct ApplyOptions {
    unsigned threads = 0;
    /// Prove only the touched positions, not the whole base and result: O(changed).
    bool touched_only = false;
    Progress progress;
    std::stop_token stop = {};  // ends it early: wisp/control.hpp
};

struct ApplyReport {
    std::uint64_t deltas_applied = 0;
    std::uint64_t deltas_skipped = 0;  // the base was already past them
    std::uint64_t changed_elements = 0;
    bool base_proven = false;  // false when a foreign delta names no base
    bool result_proven = false;
    StateDigest result;
    Recovery recovery = Recovery::kNone;
};

/// Writes the patched checkpoint to `output`: a file for a file, a folder for a folder (with the
/// folder's other files beside it). `output` must not exist, unless it is a file to be replaced.
Result<ApplyReport> apply(const std::filesystem::path& base,
                          const std::vector<std::filesystem::path>& deltas,
                          const std::filesystem::path& output, const ApplyOptions& options = {});

/// Overwrites the changed positions of `base`, all deltas or none, through a journal beside it.
Result<ApplyReport> apply_in_place(const std::filesystem::path& base,
                                   const std::vector<std::filesystem::path>& deltas,
                                   const ApplyOptions& options = {});

/// Overwrites the changed positions of weights in memory, all deltas or none. The whole state is
/// proven before and after, and the old bits are put back when it is not what it should be.
Result<ApplyReport> apply_in_memory(MutableWeights& weights,
                                    const std::vector<std::filesystem::path>& deltas,
                                    const ApplyOptions& options = {});

/// Finishes or undoes what an interrupted apply_in_place left behind, if anything.
Result<Recovery> recover(const std::filesystem::path& base);

/// The vector kernel in use ("AVX3_ZEN4", "AVX2", …, or "reference"); WISP_KERNEL forces one.
std::string kernel_name();
/// kInvalid when WISP_KERNEL names none that runs here.
Result<void> check_kernel();

}  // namespace wisp
