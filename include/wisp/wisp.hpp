// wisp: weights in sparse patches. All public headers, in the order of reading; or begin with
// publisher.hpp and follower.hpp. ARCHITECTURE.md has the layers.
#pragma once

// What everything stands on.
#include "wisp/control.hpp"
#include "wisp/result.hpp"

// Weights, in memory and in files.
#include "wisp/checkpoint.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

// What changed between two of them, as a file.
#include "wisp/delta.hpp"
#include "wisp/inspect.hpp"

// Where runs lie, and whom to believe.
#include "wisp/hub.hpp"
#include "wisp/run.hpp"
#include "wisp/signing.hpp"
#include "wisp/store.hpp"
#include "wisp/trust.hpp"

// Following a run.
#include "wisp/followed_folders.hpp"
#include "wisp/follower.hpp"
#include "wisp/relay.hpp"
#include "wisp/replica.hpp"
#include "wisp/step_folders.hpp"

// Publishing one.
#include "wisp/async_publisher.hpp"
#include "wisp/publisher.hpp"
#include "wisp/shard.hpp"
#include "wisp/sharded_publisher.hpp"

// Keeping it small and sound, and looking at it.
#include "wisp/history.hpp"
#include "wisp/maintenance.hpp"
#include "wisp/run_status.hpp"
#include "wisp/verdict.hpp"

// Servers of engines, and TRL's buckets.
#include "wisp/engine_driver.hpp"
#include "wisp/trl_layout.hpp"
