#include "base/free_memory.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

void put(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

constexpr const char* kMemory = "MemTotal:  64 kB\nMemAvailable:   32 kB\nHugepagesize: 2 kB\n";

TEST(FreeMemory, IsWhatTheKernelSays) {
    EXPECT_GT(free_memory_bytes(), 1U << 20);
    const TempFolder root;
    put(root / "proc/meminfo", kMemory);
    EXPECT_EQ(free_memory_bytes(root.path()), 32U * 1024);
}

TEST(FreeMemory, IsLessWhereAGroupOrOneAroundItHasLess) {
    const TempFolder root;
    put(root / "proc/meminfo", kMemory);
    put(root / "proc/self/cgroup", "0::/pods/trainer\n");
    put(root / "sys/fs/cgroup/pods/trainer/memory.max", "max\n");
    EXPECT_EQ(free_memory_bytes(root.path()), 32U * 1024);
    put(root / "sys/fs/cgroup/pods/memory.max", "9000\n");
    put(root / "sys/fs/cgroup/pods/memory.current", "4000\n");
    EXPECT_EQ(free_memory_bytes(root.path()), 5000U);
    put(root / "sys/fs/cgroup/pods/trainer/memory.max", "100\n");
    put(root / "sys/fs/cgroup/pods/trainer/memory.current", "300\n");
    EXPECT_EQ(free_memory_bytes(root.path()), 0U);
}

TEST(FreeMemory, HeedsTheFirstVersionOfGroupsToo) {
    const TempFolder root;
    put(root / "proc/meminfo", kMemory);
    put(root / "proc/self/cgroup", "4:memory:/pods\n3:cpuset:/\n0::/\n");
    put(root / "sys/fs/cgroup/memory/pods/memory.limit_in_bytes", "8000\n");
    put(root / "sys/fs/cgroup/memory/pods/memory.usage_in_bytes", "1000\n");
    EXPECT_EQ(free_memory_bytes(root.path()), 7000U);
}

TEST(FreeMemory, IsNothingWhereItCannotBeTold) {
    const TempFolder root;
    EXPECT_EQ(free_memory_bytes(root.path()), 0U);
}

}  // namespace
}  // namespace wisp::testing
