// How an actor that writes to a run enters a simulation.
#pragma once

#include <string>
#include <utility>

#include "sim/world.hpp"

namespace wisp::sim {

/// `Writer` is made anew for the actor, and its session() runs again whenever it was killed.
template <class Writer>
void add_writer(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms) {
    Actor& added = world.scheduler().add(
        std::move(name),
        [&world, prefix = std::move(prefix)](Actor& actor) {
            Writer writer(world, actor, prefix);
            world.live(actor, [&] { writer.session(); });
        },
        starts_in_ms);
    added.writes = true;
}

}  // namespace wisp::sim
