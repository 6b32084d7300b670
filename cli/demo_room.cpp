#include "demo_room.hpp"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "output.hpp"
#include "simulated_training.hpp"

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kProcessBytes = std::uint64_t{100} << 20;  // blocks in work, code, stacks

std::uint64_t model_bytes(unsigned layers) {
    const auto bytes = [](unsigned count) {
        std::uint64_t sum = 0;
        for (const auto& tensor : simulation::qwen3_tensors(count)) {
            sum += 2 * element_count_of(tensor.info);
        }
        return sum;
    };
    const std::uint64_t without = bytes(0);
    return without + layers * (bytes(1) - without);
}

std::uint64_t number_after(const char* path, std::string_view label) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
        std::uint64_t number = 0;
        if (word == label && file >> number) return number;
    }
    return 0;
}

/// What can be taken without swapping, also inside a container.
std::uint64_t free_memory() {
    const std::uint64_t machine = number_after("/proc/meminfo", "MemAvailable:") * 1024;
    std::uint64_t limit = 0;
    std::uint64_t used = 0;
    if (!(std::ifstream("/sys/fs/cgroup/memory.max") >> limit)) return machine;
    if (!(std::ifstream("/sys/fs/cgroup/memory.current") >> used)) return machine;
    used -= std::min(used, number_after("/sys/fs/cgroup/memory.stat", "inactive_file"));
    return std::min(machine, limit > used ? limit - used : 0);
}

struct Place {
    fs::path path;
    std::uint64_t free_bytes = 0;
    bool in_memory = false;
    bool usable = false;
};

Place look_at(fs::path path) {
    Place place{std::move(path)};
    std::error_code error;
    fs::path there = fs::absolute(place.path, error);
    while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
    struct statfs about = {};
    place.usable = ::access(there.c_str(), W_OK) == 0 && ::statfs(there.c_str(), &about) == 0;
    if (!place.usable) return place;
    place.free_bytes =
        static_cast<std::uint64_t>(about.f_bavail) * static_cast<std::uint64_t>(about.f_bsize);
    place.in_memory = about.f_type == TMPFS_MAGIC;
    return place;
}

bool fits(const DemoNeeds& needs, const Place& place, std::uint64_t memory) {
    const std::uint64_t wanted = needs.memory_bytes + (place.in_memory ? needs.disk_bytes : 0);
    return place.usable && needs.disk_bytes <= place.free_bytes && wanted <= memory;
}

std::string smaller_size(const DemoSize& size, const Place& place, std::uint64_t memory) {
    DemoSize smaller = size;
    for (smaller.layers = size.layers - 1; smaller.layers > 0; --smaller.layers) {
        if (fits(needs_of(smaller), place, memory)) {
            return fmt::format("--layers {} would fit", smaller.layers);
        }
    }
    return "not even --layers 1 would fit";
}

Result<void> require_room(const DemoSize& size, const Place& place) {
    const std::uint64_t memory = free_memory();
    const DemoNeeds needs = needs_of(size);
    if (!place.usable) {
        return fail(ErrorKind::kDenied, fmt::format("cannot write into {}; name another folder "
                                                    "with --dir",
                                                    printable(place.path.string())));
    }
    if (fits(needs, place, memory)) return {};
    if (needs.disk_bytes > place.free_bytes) {
        return fail(ErrorKind::kNoSpace,
                    fmt::format("the demo needs {} of disk, and {} has {} free: {}; or name "
                                "another folder with --dir",
                                human_bytes(needs.disk_bytes), printable(place.path.string()),
                                human_bytes(place.free_bytes), smaller_size(size, place, memory)));
    }
    const std::uint64_t files = place.in_memory ? needs.disk_bytes : 0;
    return fail(ErrorKind::kUnavailable,
                fmt::format("the demo needs {} of memory{}, and {} are free: {}; or take fewer "
                            "--followers",
                            human_bytes(needs.memory_bytes + files),
                            files == 0 ? "" : ", since that folder is in memory too",
                            human_bytes(memory), smaller_size(size, place, memory)));
}

/// The first place with room, else the one to complain about.
Place best_place(const DemoSize& size, bool keep) {
    std::error_code error;
    std::vector<fs::path> paths;
    // A disk may be too slow for the demo to be fun; but what is kept belongs on one.
    if (!keep) paths.emplace_back("/dev/shm");
    const fs::path temporary = fs::temp_directory_path(error);
    paths.push_back(error ? fs::path("/tmp") : temporary);
    paths.emplace_back("/var/tmp");
    for (const fs::path& path : paths) {
        Place place = look_at(path);
        if (fits(needs_of(size), place, free_memory())) return place;
    }
    return look_at(paths[keep ? 0 : 1]);
}

Error cannot_make(const fs::path& path, const std::string& why) {
    return {ErrorKind::kInvalid, fmt::format("cannot make {}: {}; name another folder with --dir",
                                             printable(path.string()), why)};
}

}  // namespace

DemoNeeds needs_of(const DemoSize& size) {
    DemoNeeds needs;
    const std::uint64_t model = model_bytes(size.layers);
    needs.model_bytes = model;
    // What fp32 masters have beyond bf16; the rest of them is the trainer's file.
    needs.memory_bytes = model + kProcessBytes * (2 + size.followers);
    needs.disk_bytes = model * (1 + size.followers);
    if (size.own_bucket) needs.disk_bytes += model + size.steps * (model / 100);
    return needs;
}

Result<DemoFolder> DemoFolder::make(const fs::path& wanted, const DemoSize& size, bool keep) {
    const Place place = wanted.empty() ? best_place(size, keep) : look_at(wanted);
    std::error_code error;
    if (!wanted.empty() && fs::exists(wanted, error) &&
        !(fs::is_directory(wanted, error) && fs::is_empty(wanted, error))) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is there and not an empty folder; name another with --dir",
                                printable(wanted.string())));
    }
    if (auto room = require_room(size, place); !room) return std::unexpected(room.error());
    if (wanted.empty()) {
        std::string name = (place.path / "wisp-demo-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            return std::unexpected(cannot_make(name, std::strerror(errno)));
        }
        return DemoFolder(name, true);
    }
    const bool made = fs::create_directories(wanted, error);
    if (error) return std::unexpected(cannot_make(wanted, error.message()));
    return DemoFolder(wanted, made);
}

DemoFolder::DemoFolder(DemoFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), made_(other.made_), kept_(other.kept_) {}

void DemoFolder::keep_only(const std::string& name) {
    // It was empty, so everything in it is the demo's.
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path_, ignored)) {
        if (entry.path().filename() != name) fs::remove_all(entry.path(), ignored);
    }
    kept_ = true;
}

DemoFolder::~DemoFolder() {
    if (path_.empty() || kept_) return;
    keep_only("");
    std::error_code ignored;
    if (made_) fs::remove(path_, ignored);
}

}  // namespace wisp::cli
