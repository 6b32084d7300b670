// What changed in a rank's blocks: found while the trainer waits, coded when it went on.
//
// What was found is kept as a list. Where that becomes longer than is worth it, the rest of the new
// bytes is copied instead, and compared after the trainer went on; where there is no memory for
// that either, each block is coded as it comes.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/file.hpp"
#include "base/page_memory.hpp"
#include "delta/change_buffer.hpp"
#include "delta/delta_writer.hpp"
#include "publish/sharded/owned_blocks.hpp"

namespace wisp {

/// What a step may keep until it is coded.
struct StepMemory {
    std::uint64_t list_bytes = 0;
    std::uint64_t copy_bytes = 0;
    PageMemory copy;             // from an earlier step, if there was one
    bool expects_dense = false;  // the step before was: listing is not even tried
};

/// For one step, used from one thread at a time. `kept` are the committed bytes of every span, the
/// same until move().
class ShardCoder {
  public:
    /// `file` is there after code(). `own` must outlive this.
    ShardCoder(const OwnBlocks& own, Codec codec, unsigned threads, std::filesystem::path file,
               StepMemory memory);

    /// The new bytes of the next spans. Adds their blocks to the manifest.
    Result<void> add(const SpanViews& views, const std::vector<Bytes>& kept,
                     ShardManifest& manifest);
    /// Completes the manifest. The bytes that were added are not needed any more.
    Result<void> code(const std::vector<Bytes>& kept, ShardManifest& manifest);
    /// Moves `kept` on by what was coded.
    Result<void> move(std::vector<Bytes>& kept, const ShardManifest& manifest) const;
    /// For the step after this one, which is not to be moved by any more.
    StepMemory release_memory(const ShardManifest& manifest);

  private:
    struct Found {
        DetectedBlock block;
        bool copied = false;
    };
    const DetectedBlock& find(const OwnBlock& block, std::span<const std::byte> old_block,
                              std::span<const std::byte> new_block, unsigned thread);
    Result<void> take(std::size_t place, std::span<const std::byte> new_block, Found found,
                      const std::vector<Bytes>& kept, ShardManifest& manifest);
    /// Whether there is memory for everything from this block on.
    bool can_copy_from(std::size_t place);
    std::span<std::byte> copy_of(const OwnBlock& block) const;
    WrittenBlock encode(const OwnBlock& block, std::span<const std::byte> old_block,
                        const BlockChanges& changes, const TouchedSums& touched, unsigned thread);
    Result<void> write(std::size_t place, const WrittenBlock& block, ShardManifest& manifest);
    Result<void> code_blocks(std::span<const MovedBlock> found,
                             std::span<const TouchedSums> touched, const std::vector<Bytes>& kept,
                             ShardManifest& manifest);
    Result<void> code_copies(const std::vector<Bytes>& kept, ShardManifest& manifest);
    Result<void> create_file();
    const OwnBlocks* own_;
    Codec codec_;
    std::filesystem::path path_;
    std::vector<WriteWorker> workers_;
    StepMemory memory_;
    ChangeBuffer found_;
    std::atomic<std::size_t> first_copied_;  // the number of blocks: none is
    std::optional<PendingFile> file_;
    std::size_t next_span_ = 0;
    std::size_t next_block_ = 0;
    std::size_t next_coded_ = 0;
    bool done_ = false;
};

}  // namespace wisp
