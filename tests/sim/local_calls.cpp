#include "sim/local_calls.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace wisp::sim {
namespace {

const LocalWatch* watching = nullptr;

int trouble_before(LocalCall call) {
    return watching == nullptr ? 0 : watching->before(call);
}

}  // namespace

void watch_local_files(const LocalWatch* watch) {
    watching = watch;
}

}  // namespace wisp::sim

extern "C" {

int fsync(int file) {
    if (const int trouble = wisp::sim::trouble_before(wisp::sim::LocalCall::kSync)) {
        errno = trouble;
        return -1;
    }
    if (wisp::sim::watching != nullptr) wisp::sim::watching->synced(file);
    return 0;
}

int rename(const char* from, const char* to) noexcept {
    if (const int trouble = wisp::sim::trouble_before(wisp::sim::LocalCall::kRename)) {
        errno = trouble;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
    if (const int trouble = wisp::sim::trouble_before(wisp::sim::LocalCall::kWrite)) {
        // As many bytes as still fit.
        (void)::syscall(SYS_pwrite64, file, bytes, count / 2, offset);
        errno = trouble;
        return -1;
    }
    return ::syscall(SYS_pwrite64, file, bytes, count, offset);
}

int posix_fallocate(int file, off_t offset, off_t bytes) {
    if (const int trouble = wisp::sim::trouble_before(wisp::sim::LocalCall::kReserve)) {
        return trouble;
    }
    return ::syscall(SYS_fallocate, file, 0, offset, bytes) == 0 ? 0 : errno;
}

pid_t getpid() noexcept {
    return 4242;
}

int gethostname(char* name, size_t bytes) noexcept {
    std::snprintf(name, bytes, "simulated");
    return 0;
}
}
