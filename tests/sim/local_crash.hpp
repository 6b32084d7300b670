// Processes die between two system calls: every write, rename and sync of a local file is a place
// where the actor that makes it can be killed. The calls are taken over from the C library for this
// executable alone; host name and process id too, so that a seed gives the same bytes everywhere.
#pragma once

#include "sim/scheduler.hpp"

namespace wisp::sim {

/// Null: nobody is killed.
void watch_local_files(Scheduler* scheduler);

}  // namespace wisp::sim
