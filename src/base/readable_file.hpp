// A regular file, open for reading, as it was found: how big it is and who may read it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/file.hpp"

namespace wisp {

struct ReadableFile {
    FileHandle handle;
    std::uint64_t size_bytes = 0;
    unsigned mode = 0;

    /// kInvalid for what is no regular file, with `wanted` in the cure: "name {wanted}".
    static Result<ReadableFile> open(const std::filesystem::path& path, const char* wanted);
};

}  // namespace wisp
