#include "follow/slice_fetcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <system_error>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/sha256.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/needed_tiles.hpp"
#include "delta/delta_chain.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMostBytes = 16 << 20;  // of one request
constexpr std::uint64_t kWantedPerWasted = 64;

/// Fills `into` with the file's bytes from `offset` on, out of whichever parts they lie in.
Result<void> read_range(const Location& from, const StoredFile& file, std::uint64_t offset,
                        std::span<std::byte> into) {
    for (const StoredPart& part : file.parts) {
        if (into.empty()) return {};
        if (offset >= part.bytes) {
            offset -= part.bytes;
            continue;
        }
        const auto count =
            static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), part.bytes - offset));
        WISP_TRY(read_exactly(from, part, offset, into.first(count)));
        into = into.subspan(count);
        offset = 0;
    }
    return {};
}

/// The parts of the file that hold the needed tiles, ascending.
Result<std::vector<ByteRange>> needed_ranges(const DeltaHead& head, const HeldSlices& held) {
    std::vector<ByteRange> ranges;
    const auto offsets = tile_offsets(head.directory);
    for (std::size_t t = 0; t < head.directory.tensors.size(); ++t) {
        const DirectoryTensor& tensor = head.directory.tensors[t];
        const auto parts = held.find(tensor.info.name);
        if (parts == held.end()) continue;
        const TileGrid grid(tensor.info, tensor.cut);
        WISP_ASSIGN(const auto needed, needed_tiles(tensor.info, grid, parts->second));
        for (std::size_t i = 0; i < needed.size(); ++i) {
            if (!needed[i] || tensor.block_bytes[i] == 0) continue;
            const std::uint64_t first = head.blocks_at + offsets[t][i];
            ranges.push_back({first, first + tensor.block_bytes[i]});
        }
    }
    std::ranges::sort(ranges, {}, &ByteRange::first);
    return ranges;
}

std::vector<ByteRange> cut_ranges(const std::vector<ByteRange>& ranges) {
    std::vector<ByteRange> pieces;
    for (const ByteRange& range : ranges) {
        for (std::uint64_t at = range.first; at < range.past; at += kMostBytes) {
            pieces.push_back({at, std::min(range.past, at + kMostBytes)});
        }
    }
    return pieces;
}

}  // namespace

std::vector<ByteRange> merge_ranges(std::vector<ByteRange> ranges) {
    std::vector<std::size_t> gaps;  // by the range behind each
    std::uint64_t wanted = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        wanted += ranges[i].past - ranges[i].first;
        if (i > 0) gaps.push_back(i);
    }
    const auto gap = [&](std::size_t i) { return ranges[i].first - ranges[i - 1].past; };
    std::ranges::sort(gaps, {}, gap);
    std::vector<bool> joined(ranges.size());
    std::uint64_t wasted = 0;
    for (const std::size_t i : gaps) {
        wasted += gap(i);
        if (wasted > wanted / kWantedPerWasted) break;
        joined[i] = true;
    }
    std::vector<ByteRange> merged;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        if (joined[i]) {
            merged.back().past = ranges[i].past;
        } else {
            merged.push_back(ranges[i]);
        }
    }
    return merged;
}

SliceFetcher::SliceFetcher(const Location& run, fs::path folder, unsigned parallel,
                           TransferTally* tally)
    : run_(run), folder_(std::move(folder)), parallel_(std::max(1U, parallel)), tally_(tally) {}

Result<fs::path> SliceFetcher::fetch(const StoredFile& file, const HeldSlices& held) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) return std::unexpected(file_error("create", folder_, error.value()));
    const fs::path path = folder_ / (file.head->sha256 + std::string(kSlicesSuffix));
    if (is_here(file, held, path)) return path;
    fs::remove(path, error);
    WISP_ASSIGN(const Location from, place_of(run_, file));
    const Stopwatch start;
    WISP_ASSIGN(const Bytes head, fetch_head(from, file));
    auto fetched = fetch_tiles(from, file, head, held, path);
    counts_.fetch_seconds += start.seconds();
    ++counts_.objects;
    const Stopwatch proving;
    // Whatever came, if it was not what the commit names, nothing of it is taken into another try.
    if (fetched && !is_here(file, held, path)) {
        fetched = fail(ErrorKind::kCorrupt,
                       fmt::format("what came of {} is not what its directory says: a range of it "
                                   "was short, shifted or of another object",
                                   shown(file.parts.front().key)));
    }
    counts_.verify_seconds += proving.seconds();
    if (fetched) return path;
    fs::remove(path, error);
    return std::unexpected(std::move(fetched).error());
}

bool SliceFetcher::is_here(const StoredFile& file, const HeldSlices& held,
                           const fs::path& path) const {
    const auto mapped = MappedFile::open(path);
    if (!mapped || mapped->bytes().size() != file.bytes()) return false;
    const auto head = mapped->bytes().first(static_cast<std::size_t>(file.head->bytes));
    return to_hex(sha256(head)) == file.head->sha256 && verify_delta_slices(path, held).has_value();
}

Result<Bytes> SliceFetcher::fetch_head(const Location& from, const StoredFile& file) {
    if (file.head->bytes > limits::kDeltaHeadBytes) {
        return fail(ErrorKind::kCorrupt, "the head of a delta claims to be too large");
    }
    Bytes head(static_cast<std::size_t>(file.head->bytes));
    WISP_TRY(read_range(from, file, 0, head));
    counts_.bytes += head.size();
    if (to_hex(sha256(head)) == file.head->sha256) return head;
    return fail(ErrorKind::kCorrupt,
                fmt::format("the head of {} is not what its commit says: its SHA-256 differs",
                            shown(file.parts.front().key)));
}

Result<void> SliceFetcher::fetch_tiles(const Location& from, const StoredFile& file,
                                       const Bytes& head, const HeldSlices& held,
                                       const fs::path& path) {
    WISP_ASSIGN(const DeltaHead parsed, parse_delta_head(head, file.bytes(), path.string()));
    WISP_ASSIGN(auto ranges, needed_ranges(parsed, held));
    const std::vector<ByteRange> pieces = cut_ranges(merge_ranges(std::move(ranges)));
    const FileHandle out(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (out.get() < 0) return std::unexpected(file_error("create", path, errno));
    if (::ftruncate(out.get(), static_cast<off_t>(file.bytes())) != 0) {
        return std::unexpected(file_error("size", path, errno));
    }
    WISP_TRY(write_at(out, 0, head, path));
    return ordered_parallel<std::uint64_t>(
        pieces.size(), parallel_,
        [&](std::uint64_t index, unsigned) -> Result<std::uint64_t> {
            const ByteRange& piece = pieces[static_cast<std::size_t>(index)];
            Bytes buffer(static_cast<std::size_t>(piece.past - piece.first));
            TransferScope counted(tally_);
            WISP_TRY(read_range(from, file, piece.first, buffer));
            WISP_TRY(write_at(out, piece.first, buffer, path));
            counted.complete(buffer.size());
            return std::uint64_t{buffer.size()};
        },
        [&](std::uint64_t, std::uint64_t bytes) -> Result<void> {
            counts_.bytes += bytes;
            return {};
        });
}

}  // namespace wisp
