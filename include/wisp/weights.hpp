// Weights somewhere in memory: a mapped checkpoint, a trainer's tensors, a replica's copy; or
// weights that are never in memory all at once and are asked for group by group.
//
// A WeightStream is read by one thread at a time, a group it has handed out by several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "wisp/result.hpp"
#include "wisp/schema.hpp"

namespace wisp {

struct BlockChanges;

class Weights {
  public:
    virtual ~Weights() = default;
    virtual const Schema& schema() const = 0;
    /// The tensor's bytes; `tensor` counts in the order of the schema.
    virtual std::span<const std::byte> bytes(std::size_t tensor) const = 0;
};

/// Weights with changes that lie beside them, not written yet.
class StagedWeights : public Weights {
  public:
    /// What lies over `count` elements; replaces `into`, whose positions count from the first. Of
    /// bits only the new ones are read; the old ones may be left out.
    virtual void staged(std::size_t tensor, std::uint64_t first_element, std::uint64_t count,
                        BlockChanges& into) const = 0;
};

/// Weights that are overwritten where they lie. No two tensors share a byte.
class MutableWeights : public Weights {
  public:
    /// The memory that bytes() shows.
    virtual std::span<std::byte> writable_bytes(std::size_t tensor) = 0;
};

/// Tensors are cut into blocks of this many elements: the unit of work, of coding and of memory.
inline constexpr unsigned kLog2BlockElements = 20;
inline constexpr std::uint64_t kBlockElements = std::uint64_t{1} << kLog2BlockElements;

/// Consecutive elements of one tensor.
struct WeightPiece {
    std::size_t tensor = 0;
    std::uint64_t first_element = 0;  // a multiple of kBlockElements
    std::span<const std::byte> bytes;
    /// The bytes are float32 and the schema says bf16: rounded to the nearest, ties to even.
    bool is_f32 = false;
};

class WeightStream {
  public:
    virtual ~WeightStream() = default;
    virtual const Schema& schema() const = 0;
    /// Goes back to the first tensor: a publish that met another commit reads everything again.
    virtual Result<void> restart() = 0;
    /// The next pieces, each beginning where the one before ends, in the order of the schema; none
    /// after the last. What they point to stays as it is until the next call.
    virtual Result<std::span<const WeightPiece>> next() = 0;
    /// The same weights, if all of them lie in memory: anchors are then made straight from there.
    virtual const Weights* whole() const { return nullptr; }
};

/// Changed elements of one tensor, as somebody else found them.
struct TensorChanges {
    std::size_t tensor = 0;
    std::uint64_t first_element = 0;           // a multiple of kBlockElements
    std::span<const std::uint32_t> positions;  // from there on, strictly increasing
    std::span<const std::byte> old_bits;       // held against the baseline's
    std::span<const std::byte> new_bits;
};

class ChangeStream {
  public:
    virtual ~ChangeStream() = default;
    virtual const Schema& schema() const = 0;
    /// In ascending order of tensor and first element, each position in one of them only; without
    /// positions after the last. What it points to stays as it is until the next call.
    virtual Result<TensorChanges> next() = 0;
};

/// Elements of one tensor that a host holds of it: the first, and for each dimension how many and
/// how far apart. Numbers count elements in row-major order, and lie inside the tensor.
struct HeldPart {
    struct Dimension {
        std::uint64_t size = 0;
        std::uint64_t stride = 0;
        friend bool operator==(const Dimension&, const Dimension&) = default;
    };
    std::uint64_t first = 0;
    std::vector<Dimension> dimensions;
    friend bool operator==(const HeldPart&, const HeldPart&) = default;
};

/// What a host holds of a run's tensors, where its engines span several hosts: by the name of the
/// tensor; of those that are absent, nothing. Parts may overlap.
using HeldSlices = std::map<std::string, std::vector<HeldPart>>;

}  // namespace wisp
