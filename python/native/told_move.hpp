// A proven move on its way to Python, which need not take all of it into objects of its own.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wisp/replica.hpp"

namespace wisp::python {

namespace nb = nanobind;

/// Valid only while it is being told; raises Invalid later.
class ToldMove {
  public:
    explicit ToldMove(const ReplicaMove* move) : move_(move) {}
    void end() { move_ = nullptr; }

    /// [(name, dtype, shape, positions as int64 bytes, bits now, bits before), …], one per tensor;
    /// of these names, or of all.
    nb::list tensors(const std::optional<std::vector<std::string>>& names) const;

    /// Into a new file, tensor by tensor: positions (u32, i64 where 2^32 elements are not enough),
    /// new bits, old bits if asked for, each padded to eight bytes. Answers (name, how many).
    std::vector<std::pair<std::string, std::size_t>> write(const std::string& path,
                                                           bool with_old) const;

  private:
    const ReplicaMove& move() const;
    const ReplicaMove* move_;
};

}  // namespace wisp::python
