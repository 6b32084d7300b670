#include "delta/patch.hpp"

#include "base/try.hpp"

namespace wisp {
namespace {

// Changes this far apart are written one by one; closer ones with what lies between them.
constexpr std::uint64_t kNearBytes = 16 * 4096;

std::uint64_t position(const FilePatch& patch, std::size_t i) {
    return std::uint64_t{load_le<std::uint32_t>(patch.positions.data() + i * 4)} * patch.width;
}

/// Overwrites one stretch of neighbouring changes by reading, patching and writing it once.
Result<void> patch_stretch(const FileHandle& file, const std::filesystem::path& path,
                           const FilePatch& patch, std::size_t first, std::size_t end,
                           Bytes& buffer) {
    const std::uint64_t begin = position(patch, first);
    buffer.resize(static_cast<std::size_t>(position(patch, end - 1) + patch.width - begin));
    const std::uint64_t at = patch.block_offset + begin;
    WISP_TRY(read_at(file, at, buffer, path));
    for (std::size_t i = first; i < end; ++i) {
        std::memcpy(buffer.data() + (position(patch, i) - begin),
                    patch.bits.data() + i * patch.width, patch.width);
    }
    return write_at(file, at, buffer, path);
}

}  // namespace

Result<void> patch_file(const FileHandle& file, const std::filesystem::path& path,
                        const FilePatch& patch, Bytes& buffer) {
    const std::size_t count = patch.positions.size() / 4;
    for (std::size_t first = 0, end = 1; first < count; first = end, ++end) {
        while (end < count && position(patch, end) - position(patch, end - 1) < kNearBytes) ++end;
        WISP_TRY(patch_stretch(file, path, patch, first, end, buffer));
    }
    return {};
}

}  // namespace wisp
