#include "checkpoint/zeroed_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/safetensors.hpp"

namespace wisp {
namespace fs = std::filesystem;

Result<Bytes> read_header(const fs::path& path) {
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
    WISP_ASSIGN(const SafetensorsHeader header, parse_safetensors(mapped.bytes(), path.string()));
    const auto head = mapped.bytes().first(static_cast<std::size_t>(header.data_offset));
    return Bytes(head.begin(), head.end());
}

Result<void> make_zeroed(const fs::path& path) {
    std::uint64_t bytes = 0;
    {
        WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
        WISP_ASSIGN(const SafetensorsHeader header,
                    parse_safetensors_head(mapped.bytes(), std::nullopt, path.string()));
        if (header.data_offset != mapped.bytes().size()) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("{} is more than the header of a safetensors file; fetch it "
                                    "again",
                                    shown(path.string())));
        }
        bytes = header.data_offset + (header.entries.empty() ? 0 : header.entries.back().end);
    }
    WISP_ASSIGN(const FileHandle file, open_for_update(path));
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0) return {};
    // Longer than a file can be, or than this disk's file system has numbers for.
    const int reason = errno == EINVAL || errno == EFBIG ? ENOSPC : errno;
    return std::unexpected(file_error("size", path, reason));
}

Result<ZeroWeights> ZeroWeights::make(const Schema& schema) {
    ZeroWeights weights(schema);
    std::uint64_t most = 0;
    for (const TensorInfo& tensor : schema.tensors()) {
        most = std::max(most, element_count_of(tensor) * traits_of(tensor.dtype).element_bytes);
    }
    WISP_ASSIGN(weights.zeros_, PageMemory::allocate(most));
    return weights;
}

std::span<const std::byte> ZeroWeights::bytes(std::size_t tensor) const {
    const TensorInfo& info = schema_->tensors()[tensor];
    return zeros_.bytes().first(
        static_cast<std::size_t>(element_count_of(info) * traits_of(info.dtype).element_bytes));
}

}  // namespace wisp
