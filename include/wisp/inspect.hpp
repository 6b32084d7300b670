// The verbs that only look: inspect, verify.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/delta.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// How a block of a delta is stored; doc/format.md section 7 has the bytes. In the order of their
/// names, as they are shown.
enum class StoredBlockKind {
    kRaw,        // every element as it is
    kSparse,     // what changed, its positions coded by how likely each was to change
    kSplit,      // every element, the byte with the exponent coded
    kSteps,      // every element, as its step from the old one
    kSwift,      // what changed, its positions readable without the base
    kUnchanged,  // takes no bytes
    kUnknown,    // not known to this version, which cannot decode it
};
/// "raw", "sparse", "split", "steps", "swift", "unchanged" or "unknown".
std::string_view name_of(StoredBlockKind kind);

struct TensorReport {
    TensorInfo tensor;
    std::uint64_t element_count = 0;  // of the tensor
    std::uint64_t changed_elements = 0;
    std::uint64_t stored_bytes = 0;  // 0 when the tensor is absent from a delta
    std::map<StoredBlockKind, std::uint64_t> block_kinds;  // how many blocks are of each
};

struct FileReport {
    std::optional<Codec> codec;  // of a delta; nothing: it is a checkpoint
    bool foreign = false;        // a delta without wisp's digests and seal
    std::uint64_t file_bytes = 0;
    std::uint64_t total_elements = 0;
    std::uint64_t changed_elements = 0;
    std::uint64_t payload_bytes = 0;
    std::optional<std::uint64_t> step;
    std::map<std::string, std::string> metadata;
    std::vector<TensorReport> tensors;
    std::optional<StateDigest> base;
    std::optional<StateDigest> result;
    std::string schema_digest;

    bool is_delta() const { return codec.has_value(); }
};

/// Reads headers and directories; payload bytes are checked against the seal.
Result<FileReport> inspect(const std::filesystem::path& file, const Progress& progress = {});

struct VerifyReport {
    FileReport file;
    bool decoded = false;  // every block was decoded against the base
    bool base_matches = false;
    bool result_matches = false;
    std::optional<StateDigest> state;  // of a checkpoint, or of base after the delta
};

/// Proves a delta or a checkpoint. With `base`, decodes every block against it without writing.
Result<VerifyReport> verify(const std::filesystem::path& file,
                            const std::optional<std::filesystem::path>& base, unsigned threads = 0,
                            const Progress& progress = {});

}  // namespace wisp
