#include "base/reader_lock.hpp"

#include <algorithm>
#include <chrono>

#include "base/try.hpp"

namespace wisp {

Result<FolderLock> lock_readers(const std::filesystem::path& place, LockMode mode,
                                Milliseconds timeout, std::string_view in_use) {
    using std::chrono::steady_clock;
    const auto end = steady_clock::now() + timeout;
    WISP_ASSIGN(const FolderLock turn, FolderLock::wait(place / "turn", mode, timeout, in_use));
    const auto left = std::chrono::duration_cast<Milliseconds>(end - steady_clock::now());
    return FolderLock::wait(place / kReadersName, mode, std::max(left, Milliseconds(0)), in_use);
}

}  // namespace wisp
