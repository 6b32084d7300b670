#include "follow/object_fetcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/parallel.hpp"
#include "base/sha256.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/assemble_interleaved.hpp"
#include "log/run_keys.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kChunkBytes = 16 << 20;
constexpr std::uint64_t kLargeChunkBytes = 64 << 20;  // where requests are counted
constexpr int kShortReads = 3;  // a reply may be cut, which the store cannot tell
constexpr std::string_view kPartialSuffix = ".partial";
constexpr std::string_view kDoneSuffix = ".done";
constexpr std::string_view kSumSuffix = ".sum";

/// What a file is called here: its hash, never a name from outside.
std::string local_name(const StoredFile& file) {
    if (file.parts.size() == 1) return file.parts.front().sha256;
    Sha256 all;
    for (const StoredPart& part : file.parts) all.add(as_bytes(part.sha256));
    return to_hex(all.finish());
}

Result<FileHandle> open_or_create(const fs::path& path, int flags) {
    FileHandle handle(::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, 0666));
    if (handle.get() < 0) return std::unexpected(file_error("create", path, errno));
    return handle;
}

/// The numbers of the chunks that a stopped fetch had completed.
std::set<std::uint32_t> completed_chunks(const fs::path& path) {
    std::set<std::uint32_t> done;
    const auto mapped = MappedFile::open(path);
    if (!mapped) return done;
    ByteReader in(mapped->bytes());
    while (in.remaining() >= 4) done.insert(in.fixed<std::uint32_t>());
    return done;
}

}  // namespace

Result<void> read_exactly(const Location& from, const StoredPart& part, std::uint64_t offset,
                          std::span<std::byte> into) {
    const std::string key = from.key(part.key);
    for (int attempt = 1; attempt <= kShortReads; ++attempt) {
        auto count = from.store->read(key, offset, into);
        if (!count && count.error().kind == ErrorKind::kNotFound) {
            return fail(ErrorKind::kGap, fmt::format("{} is gone from the bucket", shown(key)));
        }
        if (!count) return std::unexpected(std::move(count).error());
        if (*count == into.size()) return {};
    }
    return fail(ErrorKind::kCorrupt,
                fmt::format("{} is shorter than its {} bytes", shown(key), part.bytes));
}

Result<Location> place_of(const Location& run, const StoredFile& file) {
    Location from = run;
    if (file.at.empty()) return from;
    const auto prefix = resolve_run_path(run.prefix, file.at);
    if (!prefix) {
        return fail(ErrorKind::kCorrupt, fmt::format("{} names the run {}, which lies outside its "
                                                     "bucket",
                                                     shown(run.url), shown(file.at)));
    }
    from.prefix = *prefix;
    return from;
}

/// The pieces that a file is fetched in. Memory goes with the parts a commit lists, never with the
/// sizes it claims for them.
class ObjectFetcher::Chunks {
  public:
    struct Chunk {
        const StoredPart* part = nullptr;
        std::uint64_t part_offset = 0;
        std::uint64_t file_offset = 0;
        std::uint64_t bytes = 0;
    };

    Chunks(const StoredFile& file, std::uint64_t most) : file_(file), most_(most) {
        for (const StoredPart& part : file.parts) {
            firsts_.push_back(count_);
            offsets_.push_back(total_);
            count_ += part.bytes / most + (part.bytes % most != 0 ? 1 : 0);
            total_ += part.bytes;
        }
    }
    std::uint64_t count() const { return count_; }
    std::uint64_t total_bytes() const { return total_; }
    Chunk operator[](std::uint64_t index) const {
        // The last part that begins at or before it: parts without bytes have no chunk.
        const auto after = std::ranges::upper_bound(firsts_, index);
        const auto at = static_cast<std::size_t>(after - firsts_.begin()) - 1;
        const StoredPart& part = file_.parts[at];
        const std::uint64_t offset = (index - firsts_[at]) * most_;
        return {&part, offset, offsets_[at] + offset, std::min(most_, part.bytes - offset)};
    }

  private:
    const StoredFile& file_;
    std::uint64_t most_;
    std::vector<std::uint64_t> firsts_;   // of each part: the number of its first chunk
    std::vector<std::uint64_t> offsets_;  // and where it begins in the file
    std::uint64_t count_ = 0;
    std::uint64_t total_ = 0;
};

ObjectFetcher::ObjectFetcher(const Location& run, fs::path folder, unsigned parallel,
                             TransferTally* tally)
    : run_(run), folder_(std::move(folder)), parallel_(std::max(1U, parallel)), tally_(tally) {}

Result<fs::path> ObjectFetcher::fetch(const StoredFile& file) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) return std::unexpected(file_error("create", folder_, error.value()));
    const fs::path path = folder_ / local_name(file);
    if (fs::is_regular_file(path, error)) {
        if (is_here(file, path)) return path;
        fs::remove(path, error);
    }

    WISP_ASSIGN(const Location from, place_of(run_, file));
    const fs::path partial = folder_ / (path.filename().string() + std::string(kPartialSuffix));
    const fs::path done = folder_ / (path.filename().string() + std::string(kDoneSuffix));
    WISP_TRY(fetch_chunks(from, file, partial));
    auto proven = verify(file, partial);
    if (proven && file.interleaved) proven = assemble(partial, path);
    fs::remove(done, error);
    // Whatever came, if it was not the object, nothing of it is taken over into another try.
    if (!proven || file.interleaved) fs::remove(partial, error);
    if (!proven) return std::unexpected(std::move(proven).error());
    if (file.interleaved) return path;
    fs::rename(partial, path, error);
    if (error) return std::unexpected(file_error("rename to", path, error.value()));
    return path;
}

Result<fs::path> ObjectFetcher::fetch_surely(const StoredFile& file) {
    auto path = fetch(file);
    if (path || path.error().kind != ErrorKind::kCorrupt) return path;
    return fetch(file);
}

/// The name outlives a loss of power, its bytes perhaps not: they were never synced.
bool ObjectFetcher::is_here(const StoredFile& file, const fs::path& path) {
    if (!file.interleaved) return verify(file, path).has_value();
    const auto sum = MappedFile::open(path.string() + std::string(kSumSuffix));
    const auto mapped = MappedFile::open(path);
    return sum && mapped && as_text(sum->bytes()) == to_hex(sha256(mapped->bytes()));
}

/// The parts' hashes say nothing of the file they make: its own is kept beside it.
Result<void> ObjectFetcher::assemble(const fs::path& parts, const fs::path& path) {
    WISP_TRY(assemble_interleaved(parts, path));
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
    WISP_ASSIGN(PendingFile sum, PendingFile::create(path.string() + std::string(kSumSuffix)));
    WISP_TRY(sum.append(as_bytes(to_hex(sha256(mapped.bytes())))));
    return sum.commit_unsynced();
}

/// A commit may claim any size. What one read shows needs no proof; of larger objects the store is
/// asked before room is made for them.
Result<void> ObjectFetcher::check_sizes(const Location& from, const StoredFile& file,
                                        std::uint64_t read_bytes) const {
    for (const StoredPart& part : file.parts) {
        if (part.bytes <= read_bytes) continue;
        const std::string key = from.key(part.key);
        const auto info = from.store->head(key);
        if (!info && info.error().kind == ErrorKind::kNotFound) {
            return fail(ErrorKind::kGap, fmt::format("{} is gone from the bucket", shown(key)));
        }
        if (!info) return std::unexpected(info.error());
        if (info->size_bytes == part.bytes) continue;
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} has {} bytes, but its commit says {}; run 'wisp scrub'",
                                shown(key), info->size_bytes, part.bytes));
    }
    return {};
}

/// What is missing must fit onto the disk, before it is fetched for nothing.
Result<void> ObjectFetcher::check_room(const fs::path& partial, std::uint64_t total) const {
    std::error_code error;
    const fs::space_info space = fs::space(folder_, error);
    if (error) return {};
    struct stat held{};
    const bool begun = ::stat(partial.c_str(), &held) == 0;
    const std::uint64_t there = begun ? static_cast<std::uint64_t>(held.st_blocks) * 512 : 0;
    if (total <= there || total - there <= space.available) return {};
    return fail(ErrorKind::kNoSpace,
                fmt::format("{} needs {} bytes more, and its disk has {} left; make room, or name "
                            "another folder",
                            shown(folder_.string()), total - there, space.available));
}

Result<void> ObjectFetcher::fetch_chunks(const Location& from, const StoredFile& file,
                                         const fs::path& partial) {
    const Stopwatch start;
    const std::uint64_t most = from.store->terms().few_requests ? kLargeChunkBytes : kChunkBytes;
    WISP_TRY(check_sizes(from, file, most));
    const Chunks chunks(file, most);
    WISP_TRY(check_room(partial, chunks.total_bytes()));
    fs::path done_path = partial;
    done_path.replace_extension(kDoneSuffix);
    const bool resumable = chunks.count() > 1;
    const std::set<std::uint32_t> done =
        resumable ? completed_chunks(done_path) : std::set<std::uint32_t>{};
    WISP_ASSIGN(const FileHandle out, open_or_create(partial, O_RDWR));
    if (::ftruncate(out.get(), static_cast<off_t>(chunks.total_bytes())) != 0) {
        return std::unexpected(file_error("size", partial, errno));
    }
    FileHandle record;
    if (resumable) {
        WISP_ASSIGN(record, open_or_create(done_path, O_WRONLY | O_APPEND));
    }
    std::uint64_t recorded = done.size() * 4;
    WISP_TRY(ordered_parallel<bool>(
        chunks.count(), parallel_,
        [&](std::uint64_t index, unsigned) -> Result<bool> {
            const Chunks::Chunk chunk = chunks[index];
            TransferScope counted(tally_);
            if (done.contains(static_cast<std::uint32_t>(index))) {
                counted.complete(chunk.bytes);
                return false;
            }
            Bytes buffer(static_cast<std::size_t>(chunk.bytes));
            WISP_TRY(read_exactly(from, *chunk.part, chunk.part_offset, buffer));
            WISP_TRY(write_at(out, chunk.file_offset, buffer, partial));
            counted.complete(chunk.bytes);
            return true;
        },
        [&](std::uint64_t index, bool fetched) -> Result<void> {
            if (!fetched) return {};
            const Chunks::Chunk chunk = chunks[index];
            counts_.bytes += chunk.bytes;
            if (chunk.part_offset == 0) ++counts_.objects;
            if (!resumable) return {};
            Bytes number;
            append_fixed(number, static_cast<std::uint32_t>(index));
            WISP_TRY(write_at(record, recorded, number, done_path));
            recorded += number.size();
            return {};
        }));
    counts_.fetch_seconds += start.seconds();
    return {};
}

Result<void> ObjectFetcher::verify(const StoredFile& file, const fs::path& path) {
    const Stopwatch start;
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
    std::uint64_t at = 0;
    for (const StoredPart& part : file.parts) {
        if (mapped.bytes().size() - at < part.bytes) {
            return fail(ErrorKind::kCorrupt, fmt::format("{} was cut short", shown(part.key)));
        }
        const auto bytes = mapped.bytes().subspan(static_cast<std::size_t>(at),
                                                  static_cast<std::size_t>(part.bytes));
        if (to_hex(sha256(bytes)) != part.sha256) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("{} is not what its commit says: its SHA-256 differs",
                                    shown(part.key)));
        }
        at += part.bytes;
    }
    counts_.verify_seconds += start.seconds();
    return {};
}

void ObjectFetcher::clear() {
    std::error_code error;
    for (const auto& item : fs::directory_iterator(folder_, error)) {
        const std::string name = item.path().filename().string();
        if (name.ends_with(kPartialSuffix) || name.ends_with(kDoneSuffix)) continue;
        std::error_code ignored;
        fs::remove_all(item.path(), ignored);
    }
}

}  // namespace wisp
