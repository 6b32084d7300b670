#include "store/folder_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "store/folder_listing.hpp"
#include "store/folder_upload.hpp"
#include "store/store_keys.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kLeftoverAgeMs = 24LL * 3600 * 1000;

std::int64_t modified_ms(const struct stat& status) {
    return static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1000 +
           status.st_mtim.tv_nsec / 1'000'000;
}

bool means_absent(int error_number) {
    return error_number == ENOENT || error_number == ENOTDIR;
}

/// An upload in the folder of `final_path`, which is made if it is missing.
Result<FolderUpload> start_upload(const fs::path& final_path) {
    const fs::path folder = final_path.parent_path();
    auto upload = FolderUpload::start(folder);
    if (upload || upload.error().kind != ErrorKind::kNotFound) return upload;
    WISP_TRY(make_folders(folder));
    return FolderUpload::start(folder);
}

}  // namespace

FolderStore::FolderStore(fs::path root, std::string home)
    : root_(std::move(root)), home_(std::move(home)) {}

std::string FolderStore::label() const {
    return "folder " + (root_ / home_).string();
}

Result<fs::path> FolderStore::path_of(const std::string& key) const {
    WISP_TRY(check_key(key));
    const bool temporary = key.starts_with(kTemporaryPrefix) ||
                           key.find("/" + std::string(kTemporaryPrefix)) != std::string::npos;
    if (temporary) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("object name {} holds '{}', which marks unfinished files in a "
                                "folder; choose another name",
                                shown(key), kTemporaryPrefix));
    }
    return root_ / key;
}

Result<void> FolderStore::put(const std::string& key, std::span<const std::byte> bytes) {
    WISP_ASSIGN(const fs::path path, path_of(key));
    WISP_ASSIGN(FolderUpload upload, start_upload(path));
    WISP_TRY(upload.fill(bytes));
    return upload.replace(path);
}

Result<Created> FolderStore::create(const std::string& key, std::span<const std::byte> bytes) {
    WISP_ASSIGN(const fs::path path, path_of(key));
    WISP_ASSIGN(FolderUpload upload, start_upload(path));
    WISP_TRY(upload.fill(bytes));
    return upload.link_new(path);
}

Result<std::size_t> FolderStore::read(const std::string& key, std::uint64_t offset,
                                      std::span<std::byte> into) {
    WISP_ASSIGN(const fs::path path, path_of(key));
    const FileHandle file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0 && means_absent(errno)) return std::unexpected(no_such_object(key));
    if (file.get() < 0) return std::unexpected(file_error("read", path, errno));
    struct stat status = {};
    if (::fstat(file.get(), &status) != 0) return std::unexpected(file_error("read", path, errno));
    if (!S_ISREG(status.st_mode)) return std::unexpected(no_such_object(key));
    // Published files never change, so the size decides; also keeps the offset inside off_t.
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (offset >= size) return 0;
    const std::size_t count = std::min<std::uint64_t>(into.size(), size - offset);
    WISP_TRY(read_at(file, offset, into.first(count), path));
    return count;
}

Result<ObjectInfo> FolderStore::head(const std::string& key) {
    WISP_ASSIGN(const fs::path path, path_of(key));
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) {
        if (means_absent(errno)) return std::unexpected(no_such_object(key));
        return std::unexpected(file_error("look at", path, errno));
    }
    if (!S_ISREG(status.st_mode)) return std::unexpected(no_such_object(key));
    return ObjectInfo{static_cast<std::uint64_t>(status.st_size), modified_ms(status)};
}

Result<void> FolderStore::remove(const std::string& key) {
    WISP_ASSIGN(const fs::path path, path_of(key));
    if (::unlink(path.c_str()) == 0) return sync_folder(path.parent_path());
    // A folder is no object, so there is nothing to remove.
    if (means_absent(errno) || errno == EISDIR) return {};
    return std::unexpected(file_error("remove", path, errno));
}

Result<std::vector<ListedObject>> FolderStore::list(const std::string& prefix,
                                                    const std::string& after, std::size_t limit) {
    WISP_TRY(check_prefix(prefix));
    if (limit == 0) return std::vector<ListedObject>();
    Result<std::int64_t> now = fail(ErrorKind::kInternal, "not asked yet");
    const auto on_leftover = [&](const fs::path& leftover) {
        struct stat status = {};
        if (::lstat(leftover.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
        if (!now) now = now_ms();
        if (now && *now - modified_ms(status) > kLeftoverAgeMs) ::unlink(leftover.c_str());
    };
    return FolderListing(root_, prefix, after, limit, on_leftover).run();
}

Result<std::int64_t> FolderStore::now_ms() {
    for (fs::path folder = root_ / home_;; folder = folder.parent_path()) {
        const auto touched = FolderUpload::start(folder);
        if (touched) {
            struct stat status = {};
            // On NFS the server fills in the time.
            if (::futimens(touched->handle().get(), nullptr) != 0 ||
                ::fstat(touched->handle().get(), &status) != 0) {
                return std::unexpected(file_error("read the clock of", folder, errno));
            }
            return modified_ms(status);
        }
        const bool climbs = touched.error().kind == ErrorKind::kNotFound &&
                            folder.has_relative_path() && folder != folder.parent_path();
        if (!climbs) return system_clock()->now_ms();
    }
}

void FolderStore::remove_empty_folders(const std::string& prefix) {
    if (!check_key(prefix)) return;
    const fs::path top = root_ / prefix;
    std::error_code ignored;
    std::vector<fs::path> folders = {top};
    fs::recursive_directory_iterator at(top, ignored);
    for (; at != fs::recursive_directory_iterator(); at.increment(ignored)) {
        if (at->is_directory(ignored) && !at->is_symlink(ignored)) folders.push_back(at->path());
    }
    // Deepest first; rmdir(2) itself refuses those that hold something.
    std::ranges::sort(folders, std::greater<>());
    for (const fs::path& folder : folders) ::rmdir(folder.c_str());
}

}  // namespace wisp
