// What a Publisher holds, known to its asynchronous form too.
#pragma once

#include <memory>

#include "corridor/publish_desk.hpp"
#include "wisp/publisher.hpp"

namespace wisp {

struct Publisher::State {
    std::unique_ptr<PublishDesk> desk;
};

}  // namespace wisp
