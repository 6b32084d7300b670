#include "base/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// A child of fork() shares its parent's locks, and would keep them after the parent's death: so it
/// closes them at once, which takes nothing from the parent.
class HeldLocks {
  public:
    static HeldLocks& all() {
        // Never destroyed: locks may be let go of after static objects are.
        static auto* const held = new HeldLocks();
        return *held;
    }
    void add(int descriptor) {
        const std::lock_guard lock(mutex_);
        descriptors_.insert(descriptor);
    }
    /// False: this process has inherited it, and does not hold it any more.
    bool remove(int descriptor) {
        const std::lock_guard lock(mutex_);
        return descriptors_.erase(descriptor) > 0;
    }

  private:
    HeldLocks() {
        ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                         [] {
                             for (const int descriptor : all().descriptors_) ::close(descriptor);
                             all().descriptors_.clear();
                             all().mutex_.unlock();
                         });
    }
    std::mutex mutex_;
    std::set<int> descriptors_;
};

/// A reader may lack the right to write.
int open_lock(const fs::path& file, LockMode mode) {
    if (mode == LockMode::kShared) {
        const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor >= 0 || errno != ENOENT) return descriptor;
    }
    return ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

}  // namespace

Result<FolderLock> FolderLock::wait(const fs::path& file, LockMode mode, Milliseconds timeout,
                                    std::string_view in_use) {
    constexpr Milliseconds kLook(3);  // flock(2) itself cannot be given a time to wait
    const auto end = std::chrono::steady_clock::now() + timeout;
    const int descriptor = open_lock(file, mode);
    if (descriptor < 0) return std::unexpected(file_error("open", file, errno));
    HeldLocks::all().add(descriptor);
    FolderLock lock(descriptor);
    while (::flock(descriptor, (mode == LockMode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return std::unexpected(file_error("lock", file, errno));
        if (stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked");
        if (std::chrono::steady_clock::now() >= end) {
            return fail(ErrorKind::kUnavailable, std::string(in_use));
        }
        std::this_thread::sleep_for(kLook);
    }
    return lock;
}

bool FolderLock::holds(const fs::path& file) const {
    struct stat held = {};
    struct stat named = {};
    return ::fstat(descriptor_, &held) == 0 && ::stat(file.c_str(), &named) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void FolderLock::keep_across_exec() const {
    (void)::fcntl(descriptor_, F_SETFD, 0);
}

Result<FolderLock> FolderLock::take(const fs::path& file, std::string_view in_use) {
    const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return std::unexpected(file_error("create", file, errno));
    HeldLocks::all().add(descriptor);
    FolderLock lock(descriptor);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        return fail(ErrorKind::kConflict, std::string(in_use));
    }
    return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

FolderLock::~FolderLock() {
    if (descriptor_ >= 0 && HeldLocks::all().remove(descriptor_)) ::close(descriptor_);
}

Result<ScratchFolder> ScratchFolder::open(const fs::path& named) {
    ScratchFolder folder;
    if (named.empty()) {
        WISP_ASSIGN(PendingFolder made, PendingFolder::temporary({}));
        folder.temporary_.emplace(std::move(made));
        return folder;
    }
    std::error_code error;
    fs::create_directories(named, error);
    if (error) return std::unexpected(file_error("create", named, error.value()));
    // The folder names the one who writes, too.
    WISP_ASSIGN(FolderLock lock,
                FolderLock::take(named / "lock",
                                 fmt::format("another process or publisher uses the scratch folder "
                                             "{}; give each its own",
                                             shown(named.string()))));
    folder.named_ = named;
    folder.lock_.emplace(std::move(lock));
    return folder;
}

}  // namespace wisp
