// A delta whose bytes have been held against every rule that can be checked without the base.
//
// Only verify_delta can make one, so decode/ cannot be handed unchecked bytes. Checked: the
// safetensors rules, format and version, the seal, the directory, and for TRL's files the strict
// ascent of all positions. What needs the base (shapes, digests, blocks) is checked on decoding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "delta/delta_layout.hpp"
#include "wisp/result.hpp"

namespace wisp {

enum class PositionCoding { kIndex32, kIndex64, kGap16, kGap32 };

struct DeltaTensor {
    TensorInfo info;  // of TRL's files name and dtype only
    bool shape_known = false;
    std::uint64_t changed_elements = 0;
    std::uint64_t stored_bytes = 0;

    // compact and swift: the coded bytes of each block
    std::vector<std::span<const std::byte>> blocks;

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
    /// False for a file without wisp's digests and seal: whoever applies it does so on trust.
    bool sealed() const { return sealed_; }
    const DeltaFacts& facts() const { return facts_; }
    const Metadata& metadata() const { return metadata_; }
    unsigned log2_block_elements() const { return log2_block_elements_; }
    /// Ascending by name; only those that changed.
    const std::vector<DeltaTensor>& tensors() const { return tensors_; }
    std::uint64_t payload_bytes() const { return payload_bytes_; }
    std::uint64_t file_bytes() const { return file_bytes_; }

  private:
    friend Result<VerifiedDelta> verify_delta(std::span<const std::byte> file, std::string label);
    friend Result<VerifiedDelta> verify_delta_file(const std::filesystem::path& path);
    VerifiedDelta() = default;
    MappedFile mapped_;
    std::string label_;
    bool sealed_ = false;
    DeltaFacts facts_;
    Metadata metadata_;
    unsigned log2_block_elements_ = 0;
    std::vector<DeltaTensor> tensors_;
    std::uint64_t payload_bytes_ = 0;
    std::uint64_t file_bytes_ = 0;
};

/// kCorrupt, kUnsupported (a newer version), or kInvalid (a checkpoint, not a delta). The bytes
/// must outlive the result. `label` names the file in errors.
Result<VerifiedDelta> verify_delta(std::span<const std::byte> file, std::string label);
Result<VerifiedDelta> verify_delta_file(const std::filesystem::path& path);

enum class FileForm { kCheckpoint, kBlocks, kTrl };
FileForm form_of(const SafetensorsHeader& header);

/// The tensors of a TRL file, positions checked. Errors carry no label.
Result<std::vector<DeltaTensor>> verify_trl_tensors(const SafetensorsHeader& header,
                                                    std::span<const std::byte> data);

}  // namespace wisp
