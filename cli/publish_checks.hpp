// What a person hardly means to publish is refused before anything is written: a delta instead of
// a checkpoint, other tensors than the run has, a step that is not after the newest.
#pragma once

#include <cstdint>

#include "wisp/wisp.hpp"

namespace wisp::cli {

struct PublishIntent {
    std::uint64_t step = 0;
    bool allow_schema_change = false;
    bool rewind = false;
};

/// kInvalid for a delta file.
Result<void> refuse_delta(const std::filesystem::path& checkpoint);

/// `baseline` stands at the newest state of the run, or holds nothing.
Result<void> check_intent(const PublishIntent& intent, const Checkpoint& checkpoint,
                          const Publisher& publisher, const Replica& baseline);

}  // namespace wisp::cli
