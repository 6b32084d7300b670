// A delta whose bytes have been held against every rule that can be checked without the base.
//
// Only verify_delta can make one, so a decoder cannot be handed unchecked bytes. Checked: the
// safetensors rules, format and version, the seal, the directory, and for TRL's files the strict
// ascent of all positions. What needs the base (shapes, digests, blocks) is checked on decoding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "checkpoint/tiles.hpp"
#include "delta/delta_directory.hpp"
#include "delta/delta_layout.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"
#include "wisp/weights.hpp"

namespace wisp {

enum class PositionCoding { kIndex32, kIndex64, kGap16, kGap32 };

/// Sums (`a` of the digest) of the words that a tile touches.
struct TileProof {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
};

struct DeltaTensor {
    TensorInfo info;  // of TRL's files name and dtype only
    bool shape_known = false;
    std::uint64_t changed_elements = 0;
    std::uint64_t stored_bytes = 0;

    // compact and swift: the coded bytes of each block, or of each tile
    std::vector<std::span<const std::byte>> blocks;
    TensorCut cut;                  // into the blocks
    std::vector<TileProof> proofs;  // of tiles, one for each
    std::vector<bool> absent;       // tiles that were not fetched; empty: none

    // plain and gap: positions and values side by side, the positions strictly ascending
    PositionCoding coding = PositionCoding::kIndex32;
    std::span<const std::byte> positions;
    std::span<const std::byte> values;
    std::uint64_t last_position = 0;
    /// Gaps only: the position before entry k * kGapMark, so that a block finds its first entry.
    std::vector<std::uint64_t> gap_marks;
};

inline constexpr std::uint64_t kGapMark = 1U << 12;

class VerifiedDelta {
  public:
    const std::string& label() const { return label_; }
    /// False for a file without wisp's digests and seal, which is applied on trust.
    bool sealed() const { return sealed_; }
    /// Only tiles that somebody needs are here. Its head was proven by the commit that names it.
    bool partial() const { return partial_; }
    const DeltaFacts& facts() const { return facts_; }
    const Metadata& metadata() const { return metadata_; }
    unsigned log2_block_elements() const { return log2_block_elements_; }
    /// Ascending by name; only those that changed.
    const std::vector<DeltaTensor>& tensors() const { return tensors_; }
    std::uint64_t payload_bytes() const { return payload_bytes_; }
    std::uint64_t file_bytes() const { return file_bytes_; }

  private:
    friend Result<VerifiedDelta> verify_delta(std::span<const std::byte> file, std::string label,
                                              const Progress& progress);
    friend Result<VerifiedDelta> verify_delta_file(const std::filesystem::path& path,
                                                   const Progress& progress);
    friend Result<VerifiedDelta> verify_delta_slices(const std::filesystem::path& path,
                                                     const HeldSlices& held);
    VerifiedDelta() = default;
    MappedFile mapped_;
    std::string label_;
    bool sealed_ = false;
    bool partial_ = false;
    DeltaFacts facts_;
    Metadata metadata_;
    unsigned log2_block_elements_ = 0;
    std::vector<DeltaTensor> tensors_;
    std::uint64_t payload_bytes_ = 0;
    std::uint64_t file_bytes_ = 0;
};

/// kCorrupt, kUnsupported (a newer version), or kInvalid (a checkpoint, not a delta). The bytes
/// must outlive the result. `label` names the file in errors; `progress` hears of the bytes that
/// were held against the seal.
Result<VerifiedDelta> verify_delta(std::span<const std::byte> file, std::string label,
                                   const Progress& progress = {});
Result<VerifiedDelta> verify_delta_file(const std::filesystem::path& path,
                                        const Progress& progress = {});

/// A sliced delta of which the head and the tiles that `held` needs are there, the rest a hole in
/// the file. The head must have been proven; each tile is, by its hash: kCorrupt names the first
/// that is not there.
Result<VerifiedDelta> verify_delta_slices(const std::filesystem::path& path,
                                          const HeldSlices& held);

/// What the beginning of a sliced delta says, without the rest.
struct DeltaHead {
    DeltaDirectory directory;
    std::uint64_t blocks_at = 0;  // in the file
};
/// `head` is proven; kCorrupt when it is not that of a sliced delta of `file_bytes`.
Result<DeltaHead> parse_delta_head(std::span<const std::byte> head, std::uint64_t file_bytes,
                                   std::string_view label);
/// How long the head of a sliced delta is, its header and directory; nothing for other files.
std::optional<std::uint64_t> head_bytes_of(std::span<const std::byte> file);

enum class FileForm { kCheckpoint, kBlocks, kTrl };
FileForm form_of(const SafetensorsHeader& header);

/// The tensors of a TRL file, positions checked. Errors carry no label.
Result<std::vector<DeltaTensor>> verify_trl_tensors(const SafetensorsHeader& header,
                                                    std::span<const std::byte> data);

}  // namespace wisp
