// A store whose requests people can see: what is waited for stands on the live line, and with -v
// each is told when it has been answered.
#pragma once

#include "output.hpp"
#include "wisp/store.hpp"

namespace wisp::cli {

/// The same location, watched where that is asked for.
Location watched(Location location, const Common& common);

}  // namespace wisp::cli
