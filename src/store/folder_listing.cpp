#include "store/folder_listing.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "base/file.hpp"
#include "base/try.hpp"
#include "store/folder_upload.hpp"

namespace wisp {
namespace fs = std::filesystem;

namespace {

struct FolderCloser {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

std::int64_t milliseconds(const timespec& time) {
    return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

/// 'd' for a folder, 'f' for a file, 0 for what is neither or has gone.
char kind_of(const dirent& entry, const fs::path& path) {
    if (entry.d_type == DT_REG) return 'f';
    if (entry.d_type == DT_DIR) return 'd';
    if (entry.d_type != DT_UNKNOWN && entry.d_type != DT_LNK) return 0;
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) return 0;
    if (S_ISREG(status.st_mode)) return 'f';
    return S_ISDIR(status.st_mode) ? 'd' : '\0';
}

}  // namespace

FolderListing::FolderListing(fs::path root, std::string prefix, std::string after,
                             std::size_t limit, std::function<void(const fs::path&)> on_leftover)
    : root_(std::move(root)),
      prefix_(std::move(prefix)),
      after_(std::move(after)),
      limit_(limit),
      on_leftover_(std::move(on_leftover)) {}

Result<std::vector<ListedObject>> FolderListing::run() {
    // Straight to the deepest folder that the prefix names.
    const std::size_t slash = prefix_.rfind('/');
    WISP_TRY(walk(slash == std::string::npos ? std::string() : prefix_.substr(0, slash + 1)));
    return std::move(listed_);
}

bool FolderListing::may_hold_wanted(const std::string& folder_key) const {
    if (!folder_key.starts_with(prefix_) && !prefix_.starts_with(folder_key)) return false;
    return folder_key > after_ || after_.starts_with(folder_key);
}

Result<void> FolderListing::walk(const std::string& folder_key) {
    const fs::path path = root_ / folder_key;
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return {};
        return std::unexpected(file_error("list", path, errno));
    }
    const auto identity = std::pair<std::uint64_t, std::uint64_t>(status.st_dev, status.st_ino);
    // A symbolic link back to a folder above would lead round for ever.
    if (std::ranges::find(above_, identity) != above_.end()) return {};
    above_.push_back(identity);
    WISP_ASSIGN(const std::vector<Entry> entries, entries_of(folder_key));
    for (const Entry& entry : entries) {
        if (listed_.size() >= limit_) break;
        if (entry.is_folder) {
            WISP_TRY(walk(folder_key + entry.name));
        } else {
            take_file(folder_key + entry.name);
        }
    }
    above_.pop_back();
    return {};
}

Result<std::vector<FolderListing::Entry>> FolderListing::entries_of(const std::string& folder_key) {
    const fs::path path = root_ / folder_key;
    const std::unique_ptr<DIR, FolderCloser> folder(::opendir(path.c_str()));
    std::vector<Entry> entries;
    if (folder == nullptr) {
        if (errno == ENOENT || errno == ENOTDIR) return entries;
        return std::unexpected(file_error("list", path, errno));
    }
    for (;;) {
        errno = 0;
        const dirent* entry = ::readdir(folder.get());
        if (entry == nullptr && errno != 0) {
            return std::unexpected(file_error("list", path, errno));
        }
        if (entry == nullptr) break;
        const std::string name = static_cast<const char*>(entry->d_name);
        if (name == "." || name == "..") continue;
        if (name.starts_with(kTemporaryPrefix)) {
            on_leftover_(path / name);
            continue;
        }
        const std::string key = folder_key + name;
        // Neither asked for nor worth a stat.
        if (!key.starts_with(prefix_) && !prefix_.starts_with(key)) continue;
        if (!check_key(key)) continue;
        const char kind = kind_of(*entry, path / name);
        if (kind == 'f' && key > after_ && key.starts_with(prefix_)) {
            entries.push_back({name, false});
        }
        if (kind == 'd' && may_hold_wanted(key + "/")) entries.push_back({name + "/", true});
    }
    // "a-b" comes before "a/b" and that before "a0": a folder sorts with its slash.
    std::ranges::sort(entries, {}, &Entry::name);
    return entries;
}

void FolderListing::take_file(const std::string& key) {
    struct stat status = {};
    // Removed since the folder was read: then it is not there.
    if (::stat((root_ / key).c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    listed_.push_back(
        {key, {static_cast<std::uint64_t>(status.st_size), milliseconds(status.st_mtim)}});
}

}  // namespace wisp
