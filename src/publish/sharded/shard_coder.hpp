// What changed in a rank's blocks: found while the trainer waits, coded when it went on.
//
// Only as long as what was found fits into memory: from there on each block is coded as it comes.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/file.hpp"
#include "delta/change_buffer.hpp"
#include "delta/delta_writer.hpp"
#include "publish/sharded/owned_blocks.hpp"

namespace wisp {

/// For one step, used from one thread at a time. `kept` are the committed bytes of every span, the
/// same until move().
class ShardCoder {
  public:
    /// `file` is there after code(). `own` must outlive this.
    ShardCoder(const OwnBlocks& own, Codec codec, unsigned threads, std::filesystem::path file,
               std::uint64_t buffer_bytes);

    /// The new bytes of the next spans. Adds their blocks to the manifest.
    Result<void> add(const SpanViews& views, const std::vector<Bytes>& kept,
                     ShardManifest& manifest);
    /// Completes the manifest's sizes and sums. The new bytes are not needed any more.
    Result<void> code(const std::vector<Bytes>& kept, ShardManifest& manifest);
    /// Moves `kept` on by what was coded.
    Result<void> move(std::vector<Bytes>& kept, const ShardManifest& manifest) const;

  private:
    struct Found {
        BlockChanges changes;
        StateDigest old_state;
    };
    Found find(const OwnBlock& block, std::span<const std::byte> old_block,
               std::span<const std::byte> new_block, unsigned thread);
    Result<void> code_blocks(std::span<const MovedBlock> found, const std::vector<Bytes>& kept,
                             ShardManifest& manifest);
    Result<void> create_file();
    const OwnBlocks* own_;
    Codec codec_;
    std::filesystem::path path_;
    std::vector<WriteWorker> workers_;
    ChangeBuffer found_;
    std::optional<PendingFile> file_;
    std::size_t next_span_ = 0;
    std::size_t next_block_ = 0;
    std::size_t next_coded_ = 0;
    bool done_ = false;
};

}  // namespace wisp
