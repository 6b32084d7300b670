// Arrays that Python owns, seen as wisp's Weights without copying a byte.
//
// The Python objects are kept alive, and their memory in place, as long as the view lives. Reading
// needs no interpreter lock; making and destroying a view does, and takes it. Python code may
// overwrite the arrays at any time: code that reads them decides when that is allowed.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "wisp/weights.hpp"

namespace wisp::python {

namespace nb = nanobind;

/// A Python object's memory, held in place.
class HeldBuffer {
  public:
    HeldBuffer() = default;
    HeldBuffer(const HeldBuffer&) = delete;
    HeldBuffer& operator=(const HeldBuffer&) = delete;
    ~HeldBuffer();
    /// False when the object has no contiguous memory, or, if asked for, none to write to.
    bool hold(nb::handle object, bool writable);
    std::span<std::byte> bytes() const;

  private:
    Py_buffer buffer_{};
};

class HostWeights : public MutableWeights {
  public:
    /// A sequence of (name, dtype as safetensors spells it, shape, object with the buffer
    /// protocol). Raises Invalid for a buffer that is not contiguous, too short or long, or, where
    /// `writable` is asked for, read-only.
    HostWeights(nb::iterable tensors, bool writable);
    HostWeights(const HostWeights&) = delete;
    HostWeights& operator=(const HostWeights&) = delete;

    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return spans_[tensor]; }
    std::span<std::byte> writable_bytes(std::size_t tensor) override { return spans_[tensor]; }
    /// False: writable_bytes() must not be written to.
    bool is_writable() const { return writable_; }

  private:
    Schema schema_;
    std::vector<std::span<std::byte>> spans_;  // in the order of the schema
    std::vector<std::unique_ptr<HeldBuffer>> buffers_;
    bool writable_ = false;
};

/// What (name, dtype as safetensors spells it, shape, …) says of a tensor.
TensorInfo tensor_info(nb::handle entry);

/// [(name, dtype, shape), …] in the order of the schema.
nb::list schema_list(const Schema& schema);
/// Back from that.
Schema schema_from(nb::handle entries);

}  // namespace wisp::python
