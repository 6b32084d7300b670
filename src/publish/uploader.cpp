#include "publish/uploader.hpp"

#include "base/file.hpp"
#include "base/parallel.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "delta/verified_delta.hpp"

namespace wisp {
namespace {

// Half of the age at which an object that no commit names may be swept away: what is older is sent
// again, so that it is young when the commit names it.
constexpr std::int64_t kYoungMs = 12 * 3'600'000;
// Asking first is worth a round trip only for what takes longer to send.
constexpr std::uint64_t kWorthAsking = 256 << 10;

struct UploadedPart {
    StoredPart part;
    bool reused = false;
};

}  // namespace

Result<bool> Uploader::is_there(const StoredPart& part) const {
    if (part.bytes < kWorthAsking) return false;
    const auto info = run_.store->head(run_.key(part.key));
    if (!info) {
        if (info.error().kind == ErrorKind::kNotFound) return false;
        return std::unexpected(info.error());
    }
    if (info->size_bytes != part.bytes) return false;
    WISP_ASSIGN(const std::int64_t now, run_.store->now_ms());
    return info->modified_ms != 0 && now - info->modified_ms < kYoungMs;
}

Result<StoredFile> Uploader::upload(const std::filesystem::path& path, std::string name,
                                    const NameKey& name_key, std::uint64_t step,
                                    std::uint64_t epoch) {
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
    const auto bytes = mapped.bytes();
    const std::uint64_t count =
        std::max<std::uint64_t>(1, (bytes.size() + part_bytes_ - 1) / part_bytes_);
    StoredFile file;
    file.name = std::move(name);
    if (file.name.empty()) {
        if (const auto head = head_bytes_of(bytes)) {
            file.head =
                StoredHead{*head, to_hex(sha256(bytes.first(static_cast<std::size_t>(*head))))};
        }
    }
    tally_->expect(bytes.size());
    WISP_TRY(ordered_parallel<UploadedPart>(
        count, parallel_,
        [&](std::uint64_t index, unsigned) -> Result<UploadedPart> {
            const auto begin = static_cast<std::size_t>(index * part_bytes_);
            const auto part = bytes.subspan(
                begin, std::min(bytes.size() - begin, static_cast<std::size_t>(part_bytes_)));
            UploadedPart done;
            TransferScope counted(tally_.get());
            done.part.bytes = part.size();
            done.part.sha256 = to_hex(sha256(part));
            const PartNumber number{static_cast<std::size_t>(index),
                                    static_cast<std::size_t>(count)};
            done.part.key = name_key({step, epoch, done.part.sha256, number});
            WISP_ASSIGN(done.reused, is_there(done.part));
            if (!done.reused) WISP_TRY(run_.store->put(run_.key(done.part.key), part));
            counted.complete(part.size());
            return done;
        },
        [&](std::uint64_t, UploadedPart done) -> Result<void> {
            (done.reused ? counts_.reused_bytes : counts_.uploaded_bytes) += done.part.bytes;
            file.parts.push_back(std::move(done.part));
            return {};
        }));
    return file;
}

Result<void> Uploader::confirm(const StoredFile& file, const std::filesystem::path& path) {
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
    std::size_t at = 0;
    for (const StoredPart& part : file.parts) {
        const auto bytes = mapped.bytes().subspan(at, static_cast<std::size_t>(part.bytes));
        at += bytes.size();
        const auto info = run_.store->head(run_.key(part.key));
        if (info || info.error().kind != ErrorKind::kNotFound) continue;
        WISP_TRY(run_.store->put(run_.key(part.key), bytes));
    }
    return {};
}

}  // namespace wisp
