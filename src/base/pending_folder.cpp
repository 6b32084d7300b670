#include "base/pending_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;

Result<PendingFolder> PendingFolder::make(std::string pattern, fs::path final_path) {
    if (::mkdtemp(pattern.data()) == nullptr) {
        return std::unexpected(file_error("create", pattern, errno));
    }
    return PendingFolder(pattern, std::move(final_path));
}

Result<PendingFolder> PendingFolder::create(const fs::path& final_path) {
    std::error_code error;
    if (fs::exists(final_path, error) && !fs::is_empty(final_path, error)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} exists already; remove it or choose another output",
                                shown(final_path.string())));
    }
    const fs::path trimmed = final_path.has_filename() ? final_path : final_path.parent_path();
    WISP_ASSIGN(
        PendingFolder pending,
        make((folder_of(trimmed) / ("." + trimmed.filename().string() + ".XXXXXX")).string(),
             trimmed));
    // mkdtemp makes it private; a finished folder is as readable as any the user creates.
    fs::permissions(pending.path(),
                    fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec |
                        fs::perms::others_read | fs::perms::others_exec,
                    error);
    return pending;
}

Result<PendingFolder> PendingFolder::temporary(const fs::path& parent) {
    std::error_code error;
    const fs::path folder = parent.empty() ? fs::temp_directory_path(error) : parent;
    fs::create_directories(folder, error);
    return make((folder / "wisp.XXXXXX").string(), {});
}

PendingFolder::PendingFolder(PendingFolder&& other) noexcept
    : temporary_(std::exchange(other.temporary_, {})), final_(std::move(other.final_)) {}

PendingFolder::~PendingFolder() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

Result<void> PendingFolder::commit() {
    WISP_TRY(sync_folder(temporary_));
    std::error_code error;
    fs::rename(temporary_, final_, error);
    if (error) return std::unexpected(file_error("rename to", final_, error.value()));
    temporary_.clear();
    return sync_folder(folder_of(final_));
}

}  // namespace wisp
