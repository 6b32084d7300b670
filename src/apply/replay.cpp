#include <algorithm>

#include "apply/journal.hpp"
#include "base/try.hpp"

namespace wisp {
namespace {

// Changes this far apart are written one by one; closer ones with what lies between them.
constexpr std::uint64_t kNearBytes = 16 * 4096;

/// Overwrites one stretch of neighbouring changes by reading, patching and writing it once.
Result<void> patch_stretch(const FileHandle& file, const std::filesystem::path& path,
                           const Journal::Record& record, std::span<const std::byte> bits,
                           std::size_t first, std::size_t end, Bytes& buffer) {
    const auto position = [&](std::size_t i) {
        return std::uint64_t{load_le<std::uint32_t>(record.positions.data() + i * 4)} *
               record.width;
    };
    const std::uint64_t begin = position(first);
    buffer.resize(static_cast<std::size_t>(position(end - 1) + record.width - begin));
    const std::uint64_t at = record.block_offset + begin;
    WISP_TRY(read_at(file, at, buffer, path));
    for (std::size_t i = first; i < end; ++i) {
        std::memcpy(buffer.data() + (position(i) - begin), bits.data() + i * record.width,
                    record.width);
    }
    return write_at(file, at, buffer, path);
}

}  // namespace

Result<void> replay(const Journal& journal, const std::vector<CheckpointFile>& files,
                    JournalSide side) {
    std::vector<FileHandle> handles;
    for (const CheckpointFile& file : files) {
        WISP_ASSIGN(FileHandle handle, open_for_update(file.path));
        handles.push_back(std::move(handle));
    }
    Bytes buffer;
    WISP_TRY(journal.for_each([&](const Journal::Record& record) -> Result<void> {
        const auto bits = side == JournalSide::kNew ? record.new_bits : record.old_bits;
        const std::size_t count = record.positions.size() / 4;
        const auto position = [&](std::size_t i) {
            return std::uint64_t{load_le<std::uint32_t>(record.positions.data() + i * 4)};
        };
        for (std::size_t first = 0, end = 1; first < count; first = end, ++end) {
            while (end < count && (position(end) - position(end - 1)) * record.width < kNearBytes) {
                ++end;
            }
            WISP_TRY(patch_stretch(handles[record.file], files[record.file].path, record, bits,
                                   first, end, buffer));
        }
        return {};
    }));
    for (std::size_t i = 0; i < files.size(); ++i) {
        WISP_TRY(sync_file(handles[i], files[i].path));
    }
    return {};
}

}  // namespace wisp
