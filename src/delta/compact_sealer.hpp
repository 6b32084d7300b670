// The container of compact and swift: two byte tensors, the blocks and their directory.
#pragma once

#include "base/spool.hpp"
#include "delta/delta_directory.hpp"
#include "delta/delta_sealer.hpp"

namespace wisp {

/// What stands before and behind the blocks of a delta.
struct CompactFrame {
    std::vector<SafetensorsEntry> entries;
    Metadata metadata;
    Bytes directory;
};
/// Fills in the counts of `facts`; `blocks_bytes` are those of all blocks together.
Result<CompactFrame> frame_compact(const DeltaDirectory& directory, std::uint64_t blocks_bytes,
                                   DeltaFacts& facts);

class CompactSealer : public DeltaSealer {
  public:
    static Result<std::unique_ptr<DeltaSealer>> create(const std::filesystem::path& output,
                                                       const Schema& schema,
                                                       unsigned log2_block_elements);
    Result<void> add(const EncodedBlock& block) override;
    Result<SealedObject> finish(DeltaFacts& facts) override;

  private:
    CompactSealer(const std::filesystem::path& output, const Schema& schema, Spool spool,
                  unsigned log2_block_elements);
    void close_tensor();
    const Schema& schema_;
    Spool blocks_;
    DeltaDirectory directory_;
    std::size_t tensor_ = 0;
    DirectoryTensor open_;  // the tensor whose blocks are coming in
};

}  // namespace wisp
