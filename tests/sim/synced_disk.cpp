#include "sim/synced_disk.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

namespace wisp::sim {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kTornBytes = 64;

ino_t inode_of(const fs::path& path) {
    struct stat status = {};
    return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

/// In one order on every machine.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
    std::error_code ignored;
    std::vector<fs::directory_entry> entries;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) entries.push_back(entry);
    std::ranges::sort(entries, {}, [](const auto& entry) { return entry.path(); });
    return entries;
}

Bytes bytes_of(int descriptor, std::size_t count) {
    Bytes bytes(count);
    const ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), 0);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
}

Bytes bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in) return {};
    Bytes bytes(static_cast<std::size_t>(in.tellg()));
    in.seekg(0);
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return bytes;
}

}  // namespace

void SyncedDisk::synced(int descriptor) {
    struct stat status = {};
    if (::fstat(descriptor, &status) != 0) return;
    if (S_ISDIR(status.st_mode)) {
        std::error_code ignored;
        sync_names(fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored),
                   status.st_ino);
    } else if (S_ISREG(status.st_mode)) {
        contents_[status.st_ino] = bytes_of(descriptor, static_cast<std::size_t>(status.st_size));
    }
}

void SyncedDisk::sync_names(const fs::path& folder, ino_t inode) {
    Names& names = names_[inode];
    names.clear();
    for (const auto& entry : entries_of(folder)) {
        if (entry.is_directory()) continue;
        names[entry.path().filename().string()] = inode_of(entry.path());
    }
}

void SyncedDisk::sync_all(const fs::path& folder) {
    sync_names(folder, inode_of(folder));
    for (const auto& entry : entries_of(folder)) {
        if (entry.is_directory()) {
            sync_all(entry.path());
        } else {
            contents_[inode_of(entry.path())] = bytes_of(entry.path());
        }
    }
}

Bytes SyncedDisk::left_of(ino_t inode, const std::map<ino_t, fs::path>& present,
                          Random& random) const {
    const auto at = present.find(inode);
    Bytes current = at == present.end() ? Bytes() : bytes_of(at->second);
    const auto kept = contents_.find(inode);
    if (kept == contents_.end()) {
        if (random.chance(0.3)) return {};
        if (random.chance(0.5)) return Bytes(current.size());
        current.resize(static_cast<std::size_t>(random.below(current.size() + 1)));
        return current;
    }
    Bytes left = kept->second;
    const std::size_t shared = std::min(left.size(), current.size());
    for (std::size_t begin = 0; begin < shared; begin += kTornBytes) {
        if (!random.chance(0.5)) continue;
        const std::size_t end = std::min(shared, begin + kTornBytes);
        std::copy(current.begin() + static_cast<std::ptrdiff_t>(begin),
                  current.begin() + static_cast<std::ptrdiff_t>(end),
                  left.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    return left;
}

void SyncedDisk::cut_power(const fs::path& folder, const fs::path& remains, Random& random) const {
    std::error_code ignored;
    std::vector<fs::path> folders{folder};
    std::map<ino_t, fs::path> present;
    for (std::size_t i = 0; i < folders.size(); ++i) {
        for (const auto& entry : entries_of(folders[i])) {
            if (entry.is_directory()) {
                folders.push_back(entry.path());
            } else {
                present[inode_of(entry.path())] = entry.path();
            }
        }
    }
    for (const fs::path& from : folders) {
        const fs::path to = remains / fs::relative(from, folder, ignored);
        fs::create_directories(to, ignored);
        const auto names = names_.find(inode_of(from));
        if (names == names_.end()) continue;
        for (const auto& [name, inode] : names->second) {
            const Bytes left = left_of(inode, present, random);
            std::ofstream(to / name, std::ios::binary)
                .write(reinterpret_cast<const char*>(left.data()),
                       static_cast<std::streamsize>(left.size()));
        }
    }
}

}  // namespace wisp::sim
