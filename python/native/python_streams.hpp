// Weights and changes that Python code hands over piece by piece, when the library asks.
//
// Each call back takes the interpreter lock; what it returned is held in place until the next one.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "arrays.hpp"
#include "wisp/weights.hpp"

namespace wisp::python {

namespace nb = nanobind;

class PythonWeights : public WeightStream {
  public:
    /// `next` returns [(tensor, first element, buffer, is float32), …], empty after the last.
    PythonWeights(Schema schema, nb::callable next, nb::callable restart);
    const Schema& schema() const override { return schema_; }
    Result<void> restart() override;
    Result<std::span<const WeightPiece>> next() override;

  private:
    Schema schema_;
    nb::callable next_;
    nb::callable restart_;
    std::vector<std::unique_ptr<HeldBuffer>> buffers_;
    std::vector<WeightPiece> pieces_;
};

class PythonChanges : public ChangeStream {
  public:
    /// `next` returns (tensor, first element, positions as uint32, old bits, new bits), or None.
    PythonChanges(Schema schema, nb::callable next);
    const Schema& schema() const override { return schema_; }
    Result<TensorChanges> next() override;

  private:
    Schema schema_;
    nb::callable next_;
    std::unique_ptr<HeldBuffer> positions_;
    std::unique_ptr<HeldBuffer> old_bits_;
    std::unique_ptr<HeldBuffer> new_bits_;
};

}  // namespace wisp::python
