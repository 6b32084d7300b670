// A follower's options, on the terms of the store it follows.
#pragma once

#include <algorithm>

#include "wisp/follower.hpp"
#include "wisp/store.hpp"

namespace wisp {

inline FollowOptions on_terms_of(const Store& store, FollowOptions options) {
    const StoreTerms terms = store.terms();
    options.poll = std::max(options.poll, Milliseconds(terms.poll_ms));
    // Advice for people is worth one counted request a minute.
    if (terms.few_requests) options.heartbeat = std::max(options.heartbeat, Milliseconds(60'000));
    return options;
}

}  // namespace wisp
