#include "temporary_folder.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace wisp::cli {
namespace fs = std::filesystem;

Result<TemporaryFolder> TemporaryFolder::make(const std::string& lead) {
    std::error_code error;
    fs::path parent = fs::temp_directory_path(error);
    if (error) parent = "/tmp";
    std::string pattern = (parent / (lead + "-XXXXXX")).string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        const int failed = errno;
        return fail(
            failed == ENOSPC ? ErrorKind::kNoSpace : ErrorKind::kDenied,
            fmt::format("cannot make a folder in {}: {}; set TMPDIR to a place with room",
                        printable(parent.string()), std::generic_category().message(failed)));
    }
    return TemporaryFolder(pattern);
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace wisp::cli
