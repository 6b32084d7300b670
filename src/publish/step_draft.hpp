// A step between being prepared and being in the log.
#pragma once

#include <optional>

#include "log/commit.hpp"
#include "wisp/publisher.hpp"

namespace wisp {

/// A step on its way into the log: what is known before anything of it is uploaded.
struct StepDraft {
    Commit commit;
    std::optional<StateName> before;  // the state it follows; none on an empty run
    PublishReport report;
    bool present = false;  // the head is this very step; there is nothing to do
};

}  // namespace wisp
