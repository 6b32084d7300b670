#include "store/folder_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

std::vector<std::string> keys_of(Store& store, const std::string& prefix = "") {
    std::vector<std::string> keys;
    for (const auto& object : value_of(store.list(prefix, "", 1000))) keys.push_back(object.key);
    return keys;
}

void make_older(const fs::path& path, std::int64_t seconds) {
    timespec times[2] = {};
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(FolderStore, LeavesOnlyTheObjectsThemselves) {
    const TempFolder folder;
    FolderStore store(folder.path());
    value_of(store.put("a", as_bytes("1")));
    value_of(store.put("a", as_bytes("2")));
    value_of(store.create("a", as_bytes("3")));
    value_of(store.create("b", as_bytes("4")));
    value_of(store.now_ms());
    EXPECT_EQ(folder.file_count(), 2U);
}

TEST(FolderStore, HidesWhatKilledWritersLeftAndClearsItAfterADay) {
    const TempFolder folder;
    FolderStore store(folder.path());
    value_of(store.put("run/a", as_bytes("1")));
    write_bytes(folder / "run/.wisp-tmp-0123", as_bytes("half"));
    write_bytes(folder / "run/.wisp-tmp-4567", as_bytes("half"));
    make_older(folder / "run/.wisp-tmp-4567", 25 * 3600);
    make_older(folder / "run/a", 25 * 3600);
    EXPECT_EQ(keys_of(store), std::vector<std::string>{"run/a"});
    EXPECT_TRUE(fs::exists(folder / "run/.wisp-tmp-0123")) << "its writer may be at work";
    EXPECT_FALSE(fs::exists(folder / "run/.wisp-tmp-4567"));
    EXPECT_TRUE(fs::exists(folder / "run/a"));
}

TEST(FolderStore, RefusesNamesOfUnfinishedFiles) {
    const TempFolder folder;
    FolderStore store(folder.path());
    EXPECT_EQ(outcome_of(store.put(".wisp-tmp-x", {})), "invalid");
    EXPECT_EQ(outcome_of(store.head("a/.wisp-tmp-x/b")), "invalid");
    value_of(store.put("a.wisp-tmp-x", {}));
}

TEST(FolderStore, CannotHoldAFileAndAFolderOfOneName) {
    const TempFolder folder;
    FolderStore store(folder.path());
    value_of(store.put("a", as_bytes("x")));
    value_of(store.put("b/c", as_bytes("y")));
    EXPECT_EQ(outcome_of(store.put("a/b", {})), "invalid");
    EXPECT_EQ(outcome_of(store.create("a/b/c", {})), "invalid");
    EXPECT_EQ(outcome_of(store.put("b", {})), "invalid");
    EXPECT_EQ(outcome_of(store.create("b", {})), "invalid");
    EXPECT_EQ(outcome_of(store.put(std::string(256, 'x'), {})), "invalid");
    EXPECT_EQ(keys_of(store), (std::vector<std::string>{"a", "b/c"}));
    EXPECT_EQ(folder.file_count(), 2U);
}

TEST(FolderStore, IsAsReadableAsAnyFileOfTheUser) {
    const TempFolder folder;
    FolderStore store(folder.path());
    const mode_t mask = ::umask(022);
    value_of(store.put("a", {}));
    value_of(store.create("b", {}));
    ::umask(mask);
    for (const char* name : {"a", "b"}) {
        EXPECT_EQ(fs::status(folder / name).permissions(),
                  fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read |
                      fs::perms::others_read);
    }
}

TEST(FolderStore, FollowsLinksButNotInCircles) {
    const TempFolder folder;
    FolderStore store(folder / "root");
    fs::create_directories(folder / "far");
    fs::create_directories(folder / "root/a");
    fs::create_directory_symlink(folder / "far", folder / "root/link");
    fs::create_directory_symlink("..", folder / "root/a/up");
    fs::create_symlink("nowhere", folder / "root/dangling");
    value_of(store.put("link/x", as_bytes("1")));
    EXPECT_TRUE(fs::exists(folder / "far/x"));
    value_of(store.put("a/y", as_bytes("2")));
    EXPECT_EQ(keys_of(store), (std::vector<std::string>{"a/y", "link/x"}));
}

TEST(FolderStore, SkipsFilesThatAreNoObjects) {
    const TempFolder folder;
    FolderStore store(folder.path());
    value_of(store.put("good", as_bytes("1")));
    write_bytes(folder / "bad\xff", as_bytes("x"));
    write_bytes(folder / "bad\n", as_bytes("x"));
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(keys_of(store), std::vector<std::string>{"good"});
    EXPECT_EQ(outcome_of(store.head("pipe")), "not_found");
    Bytes into(1);
    EXPECT_EQ(outcome_of(store.read("pipe", 0, into)), "not_found");
}

TEST(FolderStore, DoesNotWalkFoldersThatCannotMatch) {
    const TempFolder folder;
    FolderStore store(folder.path());
    for (const char* key : {"a/1", "b/1", "c/1"}) value_of(store.put(key, {}));
    // A leftover is cleared where a walk comes by, and so tells where it came by.
    for (const char* name : {"a", "b", "c"}) {
        write_bytes(folder / name / ".wisp-tmp-0", {});
        make_older(folder / name / ".wisp-tmp-0", 48 * 3600);
    }
    EXPECT_EQ(keys_of(store, "b/"), std::vector<std::string>{"b/1"});
    EXPECT_TRUE(fs::exists(folder / "a/.wisp-tmp-0"));
    EXPECT_FALSE(fs::exists(folder / "b/.wisp-tmp-0"));
    EXPECT_TRUE(fs::exists(folder / "c/.wisp-tmp-0"));
    EXPECT_EQ(value_of(store.list("", "b/1", 10)).size(), 1U);
    EXPECT_TRUE(fs::exists(folder / "a/.wisp-tmp-0"));
}

TEST(FolderStore, RemovesEmptyFoldersWhenAsked) {
    const TempFolder folder;
    FolderStore store(folder.path());
    for (const char* key : {"a/b/c/1", "a/b/2", "a/d/3"}) value_of(store.put(key, {}));
    for (const char* key : {"a/b/c/1", "a/b/2"}) value_of(store.remove(key));
    EXPECT_TRUE(fs::exists(folder / "a/b/c")) << "remove() alone leaves folders";
    store.remove_empty_folders("a");
    EXPECT_FALSE(fs::exists(folder / "a/b"));
    EXPECT_TRUE(fs::exists(folder / "a/d/3"));
}

TEST(FolderStore, ReadsAFolderItMayNotWrite) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    const TempFolder folder;
    ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
    FolderStore store(folder.path());
    value_of(store.put("a", as_bytes("x")));
    ASSERT_EQ(::seteuid(65534), 0);
    const auto put = store.put("b", {});
    const auto created = store.create("b", {});
    const auto removed = store.remove("a");
    const auto read = read_whole(store, "a", 10);
    const auto now = store.now_ms();
    const auto listed = store.list("", "", 10);
    ASSERT_EQ(::seteuid(0), 0);
    EXPECT_EQ(outcome_of(put), "denied");
    EXPECT_EQ(outcome_of(created), "denied");
    EXPECT_EQ(outcome_of(removed), "denied");
    EXPECT_EQ(value_of(read).size(), 1U);
    EXPECT_GT(value_of(now), 0);
    EXPECT_EQ(value_of(listed).size(), 1U);
}

class SmallDisk {
  public:
    explicit SmallDisk(const fs::path& at) : at_(at) {
        fs::create_directories(at_);
        mounted_ = ::mount("none", at_.c_str(), "tmpfs", 0, "size=1m") == 0;
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    ~SmallDisk() {
        if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
    }
    bool mounted() const { return mounted_; }

  private:
    fs::path at_;
    bool mounted_ = false;
};

TEST(FolderStore, SaysWhenTheDiskIsFullAndKeepsTheOldObject) {
    const TempFolder folder;
    const SmallDisk disk(folder / "disk");
    if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here";
    FolderStore store(folder / "disk");
    value_of(store.put("a", as_bytes("old")));
    const Bytes large(4 << 20);
    EXPECT_EQ(outcome_of(store.put("a", large)), "no_space");
    EXPECT_EQ(outcome_of(store.create("b", large)), "no_space");
    EXPECT_EQ(value_of(read_whole(store, "a", 10)).size(), 3U);
    EXPECT_EQ(keys_of(store), std::vector<std::string>{"a"});
    value_of(store.put("a", as_bytes("newer")));
    EXPECT_EQ(value_of(store.head("a")).size_bytes, 5U);
}

}  // namespace
}  // namespace wisp::testing
