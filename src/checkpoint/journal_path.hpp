// Where the journal of an in-place apply lies: beside a file, inside a folder.
//
// Known to all code that opens a checkpoint, since one with a journal is between two states.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "base/file.hpp"

namespace wisp {

inline std::filesystem::path journal_path(const std::filesystem::path& checkpoint) {
    constexpr const char* kSuffix = ".wisp-journal";
    std::error_code ignored;
    if (std::filesystem::is_directory(checkpoint, ignored)) return checkpoint / kSuffix;
    return folder_of(checkpoint) / (checkpoint.filename().string() + kSuffix);
}

}  // namespace wisp
