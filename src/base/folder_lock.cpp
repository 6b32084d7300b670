#include "base/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
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

}  // namespace

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
