// Slows down before a server that counts requests has to refuse one.
//
// The server tells with each answer what is left, for all who share the account:
//   RateLimit: "api";r=37;t=120        37 more within the next 120 seconds
// Plenty left: nothing happens. When little is left, each caller leaves so much time between its
// requests that its own would last to the end of the window. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "wisp/control.hpp"

namespace wisp {

/// What a RateLimit header says; nothing when it is not understood. Of several policies in one
/// header, the one with the least left.
struct RateLimit {
    std::uint64_t remaining = 0;
    std::uint64_t reset_seconds = 0;
};
std::optional<RateLimit> parse_rate_limit(std::string_view header);

class RatePacer {
  public:
    /// Remembers what an answer said; an empty header says nothing.
    void note(std::string_view header, std::int64_t now_ms);
    /// How long to wait before the next request.
    Milliseconds pause(std::int64_t now_ms);

  private:
    std::mutex mutex_;
    std::uint64_t remaining_ = 0;
    std::int64_t resets_ms_ = 0;  // 0: nothing was said
};

}  // namespace wisp
