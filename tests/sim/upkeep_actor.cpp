// Compaction and retention.
#include "sim/actors.hpp"
#include "wisp/upkeep.hpp"

namespace wisp::sim {

void add_compactor(World&, std::string, std::int64_t) {}
void add_retention(World&, std::string, std::int64_t) {}

}  // namespace wisp::sim
