// What a follower's replica looks like from Python: targets in host memory, and whole states told
// to code.
#pragma once

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "arrays.hpp"
#include "wisp/replica.hpp"

namespace wisp::python {

namespace nb = nanobind;

/// A whole state on its way to Python, valid only while it is being told.
class TakenState {
  public:
    explicit TakenState(const Weights* weights) : weights_(weights) {}
    /// Raises Invalid when the telling is over.
    const Weights& weights() const;
    void end() { weights_ = nullptr; }

  private:
    const Weights* weights_;
};

/// Memory of exactly `schema` among the named tensors of `host`, which may have more names than one
/// for the same memory. kInvalid listing the first differences; extra tensors are one of them only
/// when `strict`.
Result<std::shared_ptr<MutableWeights>> select_target(std::shared_ptr<HostWeights> host,
                                                      const Schema& schema, bool strict);

/// Either readers hold it, or a move does.
class Gate {
  public:
    /// Waits for others to let go; false when the caller's work is to end before they do. Must not
    /// be called with the interpreter lock held.
    bool close();
    void open();

  private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool closed_ = false;
};

}  // namespace wisp::python
