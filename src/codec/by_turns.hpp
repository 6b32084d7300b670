// The order in which the two lanes of a swift block take its changes: doc/format.md section 12.
#pragma once

#include <cstddef>

#include "codec/rans.hpp"

namespace wisp {

/// Calls body<lane>(i) for every i below `count`, the lanes by turns.
template <class Body>
void by_turns(std::size_t count, Body&& body) {
    std::size_t i = 0;
    for (; i + 2 <= count; i += 2) {
        body.template operator()<Lane::kPosition>(i);
        body.template operator()<Lane::kValue>(i + 1);
    }
    if (i < count) body.template operator()<Lane::kPosition>(i);
}

}  // namespace wisp
