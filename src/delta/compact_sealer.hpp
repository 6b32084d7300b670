// The container of compact and swift: two byte tensors, the blocks and their directory. In a sliced
// delta the directory comes first, so that with the header it is the head of the file.
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
                                                       unsigned log2_block_elements,
                                                       unsigned slices);
    Result<void> add(const EncodedBlock& block) override;
    Result<SealedObject> finish(DeltaFacts& facts) override;

  private:
    CompactSealer(const std::filesystem::path& output, const Schema& schema,
                  std::vector<Spool> segments, unsigned log2_block_elements, unsigned slices);
    void open_tensor(std::size_t tensor);
    void close_tensor();
    Result<void> add_tiles(const EncodedBlock& block);
    const Schema& schema_;
    std::vector<Spool> segments_;  // one, unless the delta is sliced
    DeltaDirectory directory_;
    std::size_t tensor_ = 0;
    DirectoryTensor open_;  // the tensor whose blocks are coming in
};

}  // namespace wisp
