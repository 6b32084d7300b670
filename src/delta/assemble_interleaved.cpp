#include "delta/assemble_interleaved.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/limits.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "delta/delta_layout.hpp"
#include "delta/interleave.hpp"

namespace wisp {
namespace {

std::unexpected<Error> bad_part(const std::string& what) {
    return fail(ErrorKind::kCorrupt, "interleaved file: " + what);
}

/// Gathers the header of a delta as it goes by, and hashes what follows it: the seal is over both.
class SealTaker {
  public:
    Result<void> take(std::span<const std::byte> bytes) {
        while (!bytes.empty() && header_.size() < wanted_) {
            const std::size_t count = std::min(bytes.size(), wanted_ - header_.size());
            header_.insert(header_.end(), bytes.begin(), bytes.begin() + count);
            bytes = bytes.subspan(count);
            if (header_.size() == kLengthBytes && wanted_ == kLengthBytes) WISP_TRY(read_length());
        }
        data_.add(bytes);
        return {};
    }

    Result<std::string> seal() {
        if (header_.size() < wanted_ || wanted_ < kSealOffset + kSealDigits ||
            as_text(header_).substr(kLengthBytes, kSealLead.size()) != kSealLead) {
            return bad_part("an open seal in what is no delta");
        }
        return seal_text(header_, data_.finish());
    }

  private:
    static constexpr std::size_t kLengthBytes = 8;

    Result<void> read_length() {
        const auto length = load_le<std::uint64_t>(header_.data());
        if (length > limits::kSafetensorsHeaderBytes) return bad_part("a header that is too long");
        wanted_ += static_cast<std::size_t>(length);
        return {};
    }

    std::size_t wanted_ = kLengthBytes;
    Bytes header_;
    Sha256 data_;
};

}  // namespace

Result<void> assemble_interleaved(const std::filesystem::path& interleaved,
                                  const std::filesystem::path& file) {
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(interleaved));
    WISP_ASSIGN(const ParsedInterleave parsed, parse_interleaved(mapped.bytes()));
    std::vector<std::span<const std::byte>> segments;
    auto rest = mapped.bytes().subspan(static_cast<std::size_t>(parsed.record_bytes));
    for (const std::uint64_t bytes : parsed.table.segment_bytes) {
        segments.push_back(rest.first(static_cast<std::size_t>(bytes)));
        rest = rest.subspan(static_cast<std::size_t>(bytes));
    }
    WISP_ASSIGN(PendingFile out, PendingFile::create(file));
    WISP_TRY(out.reserve(parsed.file_bytes));
    SealTaker taker;
    for (const Extent& extent : parsed.table.extents) {
        auto& segment = segments[static_cast<std::size_t>(extent.segment)];
        const auto bytes = segment.first(static_cast<std::size_t>(extent.bytes));
        segment = segment.subspan(bytes.size());
        if (parsed.table.open_seal) WISP_TRY(taker.take(bytes));
        WISP_TRY(out.append(bytes));
    }
    if (parsed.table.open_seal) {
        WISP_ASSIGN(const std::string seal, taker.seal());
        WISP_TRY(write_at(out.handle(), kSealOffset, as_bytes(std::string_view(seal)), file));
    }
    return out.commit_unsynced();
}

}  // namespace wisp
