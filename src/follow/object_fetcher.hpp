// Brings the objects of a run onto this disk, whole and proven by their hashes.
//
// Large files come in ranges, several at a time, and go on where a killed process stopped. A file
// has its name only when every part's SHA-256 was found right; what is interleaved of its parts is
// put together after that. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/transfer_tally.hpp"
#include "log/commit.hpp"
#include "wisp/control.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct FetchCounts {
    std::uint64_t bytes = 0;
    std::uint64_t objects = 0;
    double fetch_seconds = 0;
    double verify_seconds = 0;

    FetchCounts& operator+=(const FetchCounts& other) {
        bytes += other.bytes;
        objects += other.objects;
        fetch_seconds += other.fetch_seconds;
        verify_seconds += other.verify_seconds;
        return *this;
    }
};

/// Where the objects of a file lie: in the run, or in another one of its bucket. kCorrupt when that
/// is outside.
Result<Location> place_of(const Location& run, const StoredFile& file);

/// Fills `into` with the part's bytes from `offset` on, asking again for an answer that is short.
/// kGap when the object is gone, kCorrupt when it stays short.
Result<void> read_exactly(const Location& from, const StoredPart& part, std::uint64_t offset,
                          std::span<std::byte> into);

class ObjectFetcher {
  public:
    /// `folder` is made when needed; what lies in it may be removed at any time between calls. What
    /// arrives is added to `tally`, if there is one.
    ObjectFetcher(const Location& run, std::filesystem::path folder, unsigned parallel,
                  TransferTally* tally = nullptr);

    /// The local path. kGap when an object is gone, kCorrupt when what came is not of the size or
    /// not of the hash that its commit says: the next call fetches it anew. kNoSpace. Memory is
    /// bounded, whatever a commit says.
    Result<std::filesystem::path> fetch(const StoredFile& file);
    /// As fetch(), and once more when what came was damaged: for callers with no other way to go.
    Result<std::filesystem::path> fetch_surely(const StoredFile& file);
    FetchCounts take_counts() { return std::exchange(counts_, {}); }
    /// Removes everything fetched except files that are still being fetched.
    void clear();

  private:
    class Chunks;
    bool is_here(const StoredFile& file, const std::filesystem::path& path);
    Result<void> assemble(const std::filesystem::path& parts, const std::filesystem::path& path);
    Result<void> check_sizes(const Location& from, const StoredFile& file,
                             std::uint64_t read_bytes) const;
    Result<void> check_room(const std::filesystem::path& partial, std::uint64_t total) const;
    Result<void> fetch_chunks(const Location& from, const StoredFile& file,
                              const std::filesystem::path& partial);
    Result<void> verify(const StoredFile& file, const std::filesystem::path& path);
    Location run_;
    std::filesystem::path folder_;
    unsigned parallel_;
    TransferTally* tally_;
    FetchCounts counts_;
};

}  // namespace wisp
