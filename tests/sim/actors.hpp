// Who takes part in a simulation. Each runs wisp's own code over its door to the bucket.
#pragma once

#include <cstdint>
#include <string>

#include "sim/world.hpp"

namespace wisp::sim {

/// Publishes, is killed, is fenced, takes over, goes back to older checkpoints.
void add_trainer(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms);
/// The same over several ranks, which may die one by one and come back as more or fewer.
void add_sharded_trainer(World& world, std::string name, std::string prefix,
                         std::int64_t starts_in_ms);
/// Publishes in the background, and hands steps over while one is on its way.
void add_async_trainer(World& world, std::string name, std::string prefix,
                       std::int64_t starts_in_ms);
/// Follows, in memory or in a folder, briskly or slowly; reaches the head in the end.
void add_replica(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms);
/// Starts a branch, and then a trainer and a replica on it.
void add_brancher(World& world, std::string prefix, std::string branch, std::int64_t starts_in_ms);
void add_compactor(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms);
void add_retention(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms);
/// A lifecycle rule: removes one commit below the head, and perhaps puts it back.
void add_lifecycle(World& world, std::string prefix, std::int64_t starts_in_ms);
/// Writes what it likes, but has no key that anybody trusts.
void add_attacker(World& world, std::string prefix, std::int64_t starts_in_ms);

/// Whether a call on a run, begun in such weather, may fail in this way.
bool may_fail(const SimPlan& plan, ErrorKind kind, Weather weather);

}  // namespace wisp::sim
