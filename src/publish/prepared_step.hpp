// A step that is ready to be uploaded: a delta against the baseline, or a whole state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/owned_file.hpp"
#include "checkpoint/owned_weights.hpp"
#include "delta/change_buffer.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/delta.hpp"

namespace wisp {

struct PreparedStep {
    std::uint64_t step = 0;
    OwnedFile delta;    // without a path: a whole state must be sent
    bool coded = true;  // false: the delta is still to be written, from `changes` or `copy`
    ChangeBuffer changes;
    std::shared_ptr<OwnedWeights> copy;  // all weights of the step, where too many changed to list
    DiffReport diff;
    double seconds = 0;
    const Weights* given = nullptr;  // the whole state, where its owner keeps it
    OwnedFile written;               // or here
    std::optional<Checkpoint> opened;

    const Weights* whole() const { return opened ? &*opened : given; }
};

}  // namespace wisp
