// What a Publisher holds, known to its asynchronous form too.
#pragma once

#include <memory>
#include <stop_token>

#include "publish/step_publisher.hpp"
#include "wisp/publisher.hpp"

namespace wisp {

struct Publisher::State {
    std::unique_ptr<StepPublisher> steps;
    std::stop_token stop;
};

}  // namespace wisp
