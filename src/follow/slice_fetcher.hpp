// Brings of sliced deltas what a host needs and no more: the head, and by ranges the tiles that
// hold something it holds.
//
// What comes is proven by itself: the head by the hash in the commit, each tile by its hash in the
// head. So answers that are short, shifted or of another object are noticed, wherever they come
// from. The file has the layout of the whole delta, with holes. One thread at a time.
#pragma once

#include <filesystem>
#include <optional>

#include "follow/object_fetcher.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// Bytes from `first` up to `past`.
struct ByteRange {
    std::uint64_t first = 0;
    std::uint64_t past = 0;
    friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// Fewer requests: joins ascending ranges across the smallest gaps, as long as all gaps that are
/// fetched in vain make up at most a sixty-fourth of what is wanted.
std::vector<ByteRange> merge_ranges(std::vector<ByteRange> ranges);

class SliceFetcher {
  public:
    /// As ObjectFetcher; they can share a folder.
    SliceFetcher(const Location& run, std::filesystem::path folder, unsigned parallel,
                 TransferTally* tally = nullptr);

    /// The local path, named `*.slices`; see DeltaChain::open(). `file` has a head. Failures as of
    /// ObjectFetcher::fetch().
    Result<std::filesystem::path> fetch(const StoredFile& file, const HeldSlices& held);
    FetchCounts take_counts() { return std::exchange(counts_, {}); }

  private:
    Result<Bytes> fetch_head(const Location& from, const StoredFile& file);
    Result<void> fetch_tiles(const Location& from, const StoredFile& file, const Bytes& head,
                             const HeldSlices& held, const std::filesystem::path& path);
    bool is_here(const StoredFile& file, const HeldSlices& held,
                 const std::filesystem::path& path) const;
    Location run_;
    std::filesystem::path folder_;
    unsigned parallel_;
    TransferTally* tally_;
    FetchCounts counts_;
};

}  // namespace wisp
