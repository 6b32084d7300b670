#include "base/free_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// Absent: no such file, or "max".
std::optional<std::uint64_t> number_in(const fs::path& path) {
    std::ifstream file(path);
    std::uint64_t number = 0;
    if (!(file >> number)) return std::nullopt;
    return number;
}

std::uint64_t left_below(const fs::path& limit, const fs::path& used) {
    const auto most = number_in(limit);
    if (!most) return kUnlimited;
    const std::uint64_t taken = number_in(used).value_or(0);
    return *most - std::min(*most, taken);
}

/// The tightest of a group's limits and those of the groups around it.
std::uint64_t left_in_group(const fs::path& mount, fs::path group, const char* limit,
                            const char* used) {
    std::uint64_t left = kUnlimited;
    for (;;) {
        const fs::path folder = mount / group.relative_path();
        left = std::min(left, left_below(folder / limit, folder / used));
        if (!group.has_relative_path()) return left;
        group = group.parent_path();
    }
}

std::uint64_t left_in_groups(const fs::path& root) {
    std::ifstream file(root / "proc/self/cgroup");
    const fs::path mounts = root / "sys/fs/cgroup";
    std::uint64_t left = kUnlimited;
    // hierarchy:controllers:path; the second version's has no controllers.
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const fs::path group = line.substr(second + 1);
        if (controllers.empty()) {
            left = std::min(left, left_in_group(mounts, group, "memory.max", "memory.current"));
        } else if (controllers == "memory") {
            left = std::min(left, left_in_group(mounts / "memory", group, "memory.limit_in_bytes",
                                                "memory.usage_in_bytes"));
        }
    }
    return left;
}

}  // namespace

std::uint64_t free_memory_bytes(const fs::path& root) {
    std::ifstream file(root / "proc/meminfo");
    for (std::string name; file >> name;) {
        std::uint64_t kilobytes = 0;
        if (name == "MemAvailable:" && file >> kilobytes) {
            return std::min(kilobytes * 1024, left_in_groups(root));
        }
        file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0;
}

}  // namespace wisp
