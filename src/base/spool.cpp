#include "base/spool.hpp"

#include <algorithm>

#include "base/try.hpp"

namespace wisp {
namespace {

constexpr std::size_t kPieceBytes = 1U << 20;

}  // namespace

Result<Spool> Spool::create(const std::filesystem::path& folder, std::size_t memory_bytes) {
    return Spool(folder, memory_bytes);
}

Result<void> Spool::append(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > memory_bytes_) WISP_TRY(flush());
    if (bytes.size() > memory_bytes_) {
        WISP_TRY(write_at(file_, flushed_bytes_, bytes, folder_));
        flushed_bytes_ += bytes.size();
    } else {
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
    size_bytes_ += bytes.size();
    return {};
}

Result<void> Spool::flush() {
    if (file_.get() < 0) {
        WISP_ASSIGN(file_, open_unnamed(folder_));
    }
    WISP_TRY(write_at(file_, flushed_bytes_, buffer_, folder_));
    flushed_bytes_ += buffer_.size();
    buffer_.clear();
    return {};
}

Result<void> Spool::drain(const std::function<Result<void>(std::span<const std::byte>)>& take) {
    if (flushed_bytes_ == 0) return buffer_.empty() ? Result<void>() : take(buffer_);
    WISP_TRY(flush());
    Bytes piece(kPieceBytes);
    for (std::uint64_t at = 0; at < flushed_bytes_; at += piece.size()) {
        const auto size =
            static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), flushed_bytes_ - at));
        const std::span<std::byte> part(piece.data(), size);
        WISP_TRY(read_at(file_, at, part, folder_));
        WISP_TRY(take(part));
    }
    return {};
}

void Spool::clear() {
    buffer_.clear();
    flushed_bytes_ = 0;
    size_bytes_ = 0;
}

}  // namespace wisp
