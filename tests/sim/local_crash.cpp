#include "sim/local_crash.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace wisp::sim {
namespace {

Scheduler* watching = nullptr;

void pass_point() {
    if (watching == nullptr || watching->running() == nullptr) return;
    // Nothing can be thrown through the C library: the actor goes on as a ghost.
    watching->point(*watching->running(), false);
}

}  // namespace

void watch_local_files(Scheduler* scheduler) {
    watching = scheduler;
}

}  // namespace wisp::sim

extern "C" {

int fsync(int) {
    wisp::sim::pass_point();
    return 0;
}

int rename(const char* from, const char* to) noexcept {
    wisp::sim::pass_point();
    return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
    wisp::sim::pass_point();
    return ::syscall(SYS_pwrite64, file, bytes, count, offset);
}

pid_t getpid() noexcept {
    return 4242;
}

int gethostname(char* name, size_t bytes) noexcept {
    std::snprintf(name, bytes, "simulated");
    return 0;
}
}
