// Weights somewhere in memory: a mapped checkpoint, a trainer's tensors, a replica's copy.
#pragma once

#include <cstddef>
#include <span>

#include "wisp/schema.hpp"

namespace wisp {

class Weights {
  public:
    virtual ~Weights() = default;
    virtual const Schema& schema() const = 0;
    /// The tensor's bytes; `tensor` counts in the order of the schema.
    virtual std::span<const std::byte> bytes(std::size_t tensor) const = 0;
};

/// Weights that are overwritten where they lie. No two tensors share a byte.
class MutableWeights : public Weights {
  public:
    /// The memory that bytes() shows.
    virtual std::span<std::byte> writable_bytes(std::size_t tensor) = 0;
};

}  // namespace wisp
