// Overwrites scattered elements of a file, neighbouring ones with one read and one write.
#pragma once

#include <filesystem>
#include <span>

#include "base/bytes.hpp"
#include "base/file.hpp"

namespace wisp {

struct FilePatch {
    std::uint64_t block_offset = 0;  // in the file
    unsigned width = 1;
    std::span<const std::byte> positions;  // u32 each, ascending, in elements from block_offset
    std::span<const std::byte> bits;       // `width` bytes each
};

/// `buffer` is reused between calls. Nothing is synced.
Result<void> patch_file(const FileHandle& file, const std::filesystem::path& path,
                        const FilePatch& patch, Bytes& buffer);

}  // namespace wisp
