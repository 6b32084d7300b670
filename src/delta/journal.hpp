// The journal of an in-place apply: (position, old bits, new bits) of everything it will overwrite.
//
//   journal := "WISPJRN1", base digest (16), result digest (16), u8 prove,
//              varint file count, file…, record…, u8 0, SHA-256 of (u8 prove … u8 0) and the
//              digests
//   file    := varint name bytes, name (relative to the checkpoint), u64 size
//   record  := u8 width, varint file, u64 byte offset of the block, u32 count,
//              u32 position…, old bits…, new bits…
//
// It gets its name only when it is complete and on disk, and only then is the first weight
// touched: a journal that has a name can always be redone, and a half-written one was never
// needed. New bits are absolute, so redoing twice is redoing once; old bits allow going back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/sha256.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/result.hpp"
#include "wisp/state.hpp"

namespace wisp {

class JournalWriter {
  public:
    /// `prove`: a replay must hold the whole state against the digests.
    static Result<JournalWriter> create(const Checkpoint& checkpoint, bool prove);
    /// `block_offset` is where the block starts in its file.
    Result<void> add(std::size_t file, std::uint64_t block_offset, const BlockChanges& changes);
    /// Afterwards the journal has its name and survives any crash.
    Result<void> finish(const StateDigest& base, const StateDigest& result);

  private:
    explicit JournalWriter(PendingFile file) : file_(std::move(file)) {}
    Result<void> append(const Bytes& bytes);
    PendingFile file_;
    Sha256 hash_;
};

class Journal {
  public:
    struct Record {
        std::size_t file = 0;
        std::uint64_t block_offset = 0;
        unsigned width = 1;
        std::span<const std::byte> positions;  // u32 each
        std::span<const std::byte> old_bits;
        std::span<const std::byte> new_bits;
    };
    /// kCorrupt when it is damaged or belongs to other files.
    static Result<Journal> open(const std::filesystem::path& checkpoint,
                                const std::vector<CheckpointFile>& files);

    /// False: only the touched positions were proven, and the digests may be unknown.
    bool prove() const { return prove_; }
    const StateDigest& base() const { return base_; }
    const StateDigest& result() const { return result_; }
    /// In the order they were written, all inside their files.
    Result<void> for_each(const std::function<Result<void>(const Record&)>& take) const;

  private:
    Journal() = default;
    MappedFile mapped_;
    std::span<const std::byte> records_;
    std::vector<std::uint64_t> file_sizes_;
    bool prove_ = true;
    StateDigest base_;
    StateDigest result_;
};

enum class JournalSide { kOld, kNew };

/// Writes one side of every record into the checkpoint's files and syncs them.
Result<void> replay(const Journal& journal, const std::vector<CheckpointFile>& files,
                    JournalSide side);

/// Removes half-written journals; true if there were any.
bool sweep_unfinished_journals(const std::filesystem::path& checkpoint);

}  // namespace wisp
