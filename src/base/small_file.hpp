// Files of a few lines, such as keys: read whole up to a limit, written once and never over
// another.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

enum class Readers { kAnyone, kOwnerOnly };

/// kInvalid for more than `limit` bytes or what is no regular file. With kOwnerOnly, kDenied when
/// the file's mode lets anyone else in.
Result<std::string> read_small_file(const std::filesystem::path& path, std::size_t limit,
                                    Readers readers);

/// Synced before it returns; gone again when anything fails. kInvalid when the name is taken.
Result<void> write_new_file(const std::filesystem::path& path, std::string_view text,
                            Readers readers);

}  // namespace wisp
