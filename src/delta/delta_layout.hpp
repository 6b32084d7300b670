// Names and keys of delta files, shared by who writes and who reads them: doc/format.md section 5.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.hpp"
#include "checkpoint/safetensors.hpp"
#include "wisp/delta.hpp"

namespace wisp {

inline constexpr std::string_view kDeltaFormat = "wisp_delta";
inline constexpr std::string_view kDeltaVersion = "1";
inline constexpr std::string_view kBlocksTensor = "wisp.blocks";
inline constexpr std::string_view kDirectoryTensor = "wisp.directory";

// TRL's own keys, written as TRL writes them.
inline constexpr std::string_view kTrlFormat = "sparse_weight_patch";
inline constexpr std::string_view kTrlVersion = "1";
inline constexpr std::string_view kTrlIndices = ".indices";
inline constexpr std::string_view kTrlValues = ".values";
inline constexpr std::string_view kTrlIdx = ".idx";
inline constexpr std::string_view kTrlVal = ".val";
inline constexpr std::string_view kTrlGapEncoding = "gap_delta";
inline constexpr std::string_view kTrlRawEncoding = "raw";
// In anchors that wisp wrote: the digest of the state. Not one of our own keys, which mark deltas.
inline constexpr std::string_view kTrlStateKey = "state_digest";

// In every delta wisp writes, whatever the codec.
inline constexpr std::string_view kOwnKeyLead = "wisp_";
inline constexpr std::string_view kSealKey = "wisp_seal";
inline constexpr std::string_view kBaseKey = "wisp_base_digest";
inline constexpr std::string_view kResultKey = "wisp_result_digest";
inline constexpr std::string_view kTouchedKey = "wisp_touched_digest";
inline constexpr std::string_view kSchemaKey = "wisp_schema_digest";
inline constexpr std::string_view kDirectorySizeKey = "wisp_directory_bytes";
inline constexpr std::string_view kSlicesKey = "wisp_slices";  // of sliced deltas alone

/// The header of a sealed delta starts with these bytes; the 64 digits of the seal follow.
inline constexpr std::string_view kSealLead = "{\"__metadata__\":{\"wisp_seal\":\"";
inline constexpr std::size_t kSealDigits = 64;
inline constexpr std::size_t kSealOffset = 8 + kSealLead.size();

/// What a delta says about itself, apart from its payload.
struct DeltaFacts {
    Codec codec = Codec::kCompact;
    std::uint64_t step = 0;
    std::uint64_t total_elements = 0;
    std::uint64_t changed_elements = 0;
    std::uint64_t changed_tensors = 0;
    StateDigest base;
    StateDigest result;
    StateDigest touched;  // of the old words under the changes
    std::string schema_digest;
};

/// As Python prints a float: "0.995", "1.0".
std::string sparsity_text(std::uint64_t changed, std::uint64_t total);

/// As Python's json.dumps writes a list of strings.
std::string python_list(const std::vector<std::string>& names);

/// Over the header, its seal taken as 64 zeros, and the SHA-256 of the data: section 5.
std::string seal_text(std::span<const std::byte> header, const Sha256Digest& data);

}  // namespace wisp
