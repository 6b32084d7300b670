// How much memory this process may still take without another one, or itself, being ended for it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace wisp {

/// What the kernel could give, and what the limits of the control groups that this process is in
/// leave. 0 where that cannot be told. `root`: of the file system, for tests.
std::uint64_t free_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace wisp
