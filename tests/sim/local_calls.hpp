// What goes wrong with local files, between a process and its disk: every write, rename and sync is
// a place where the actor that makes it can be killed, and where its disk can be full. The calls
// are taken over from the C library for this executable alone; host name and process id too, so
// that a seed gives the same bytes everywhere.
#pragma once

#include <functional>

namespace wisp::sim {

enum class LocalCall { kWrite, kReserve, kRename, kSync };

/// Who looks on.
struct LocalWatch {
    /// Before the call. What it returns is the errno that the call fails with; 0: none.
    std::function<int(LocalCall)> before;
    /// After a sync that was done.
    std::function<void(int descriptor)> synced;
};

/// Null: all goes well.
void watch_local_files(const LocalWatch* watch);

}  // namespace wisp::sim
