// The ranks of a sharded trainer, one after the other in one fiber; each can die alone.
#pragma once

#include <optional>
#include <vector>

#include "sim/world.hpp"
#include "wisp/shard.hpp"

namespace wisp::sim {

class SimRanks {
  public:
    using ShardManifests = std::vector<std::vector<std::byte>>;

    SimRanks(World& world, Actor& actor, Location run, std::size_t count, Random& random);

    /// Another model: all begin anew.
    void take_schema(const Schema& schema);
    /// Every rank's part of the call, each from the committed bytes it keeps, or has from the
    /// bucket again. A rank may die on the way.
    Result<ShardManifests> deliver(const ShardCall& call, const Weights& weights);
    Result<void> advance(const StateDigest& state);
    /// The last step's fate is known now: it landed as `base`, or not.
    Result<void> reconcile(const std::optional<StateDigest>& landing, const StateDigest& base);

  private:
    Result<ShardWriter> open(std::size_t rank) const;
    Result<std::vector<std::byte>> deliver_one(std::size_t rank, const ShardCall& call,
                                               const Weights& weights);
    std::vector<std::span<const std::byte>> views(std::size_t rank, const Weights& weights) const;

    World& world_;
    Actor& actor_;
    Location run_;
    Random& random_;
    unsigned log2_;
    std::uint64_t inline_bytes_;
    std::optional<Schema> schema_;
    std::vector<std::vector<BlockSpan>> spans_;
    std::vector<std::optional<ShardWriter>> writers_;  // absent: the rank is dead
};

}  // namespace wisp::sim
