// Weights in memory of their own: a replica's, or a copy that outlives the memory it was made from.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/page_memory.hpp"
#include "wisp/control.hpp"
#include "wisp/weights.hpp"

namespace wisp {

class OwnedWeights : public MutableWeights {
  public:
    /// Zeros. kUnavailable when there is not that much memory.
    static Result<std::shared_ptr<OwnedWeights>> allocate(const Schema& schema);
    static Result<std::shared_ptr<OwnedWeights>> copy_of(const Weights& from);

    /// Takes over all that the stream holds, whose schema is this one's.
    Result<void> read(WeightStream& stream, unsigned threads, const Progress& progress);

    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return tensors_[tensor]; }
    std::span<std::byte> writable_bytes(std::size_t tensor) override { return tensors_[tensor]; }

  private:
    Schema schema_;
    PageMemory memory_;
    std::vector<std::span<std::byte>> tensors_;
};

}  // namespace wisp
