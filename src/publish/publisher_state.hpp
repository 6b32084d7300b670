// What a Publisher holds, known to its asynchronous form too.
#pragma once

#include <memory>
#include <stop_token>

#include "publish/run_writer.hpp"
#include "wisp/publisher.hpp"

namespace wisp {

struct Publisher::State {
    std::unique_ptr<RunWriter> writer;
    std::stop_token stop;
};

}  // namespace wisp
