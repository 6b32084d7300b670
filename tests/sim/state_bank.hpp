// Every state that any trainer handed over, by its digest: what replicas may hold, bit for bit.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

namespace wisp::sim {

class Model : public Weights {
  public:
    Model(Schema schema, Random& random);
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return tensors_[tensor]; }

    /// Changes about `share` of the elements, most of them slightly.
    void train(double share, Random& random);

  private:
    Schema schema_;
    std::vector<Bytes> tensors_;
};

/// A few small tensors; `variant` tells one schema from another.
Model make_model(unsigned variant, Random& random);

class StateBank {
  public:
    StateDigest remember(const Model& model);
    const Model* find(const StateDigest& digest) const;
    /// Whether `weights` are a state of the bank, and the one that `digest` names.
    bool holds(const Weights& weights, const StateDigest& digest) const;

  private:
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<const Model>> states_;
};

}  // namespace wisp::sim
