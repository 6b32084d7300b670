// What can go wrong in a fault store, how often, and who decides.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/random.hpp"
#include "doubles/store_operation.hpp"
#include "wisp/control.hpp"

namespace wisp {

/// How create() behaves in a store that may be worse than its word.
enum class Creation {
    kExclusive,
    kRacy,      // looks first, then writes: creates in flight at once may all win
    kOverwrite  // ignores the condition
};

/// Probabilities per call, each where it applies, and the sizes of the troubles.
struct FaultPlan {
    double fail_before = 0;  // nothing happened, and kUnavailable
    double reply_lost = 0;   // it happened, and kUnavailable
    double throttle = 0;     // nothing happened, and kUnavailable with a time to wait
    double slow = 0;
    double stale_read = 0;  // read and head answer from the past
    double stale_list = 0;
    double truncated_read = 0;  // fewer bytes than there are
    double flipped_bit = 0;
    double oversized_read = 0;  // more bytes than there are, as many as asked for

    std::uint64_t stale_operations = 20;  // how far into the past
    Milliseconds slow_for{2'000};
    std::uint32_t retry_after_ms = 1'000;
    Creation creation = Creation::kExclusive;
    Milliseconds race_window{2};  // kRacy: between the look and the write
    /// kRacy: what was written within so many operations is not seen by the look, so that a
    /// simulation in one thread can race.
    std::uint64_t race_operations = 0;
};

/// What happens to one call.
struct Trouble {
    bool slow = false;
    bool fail_before = false;
    bool throttle = false;
    bool reply_lost = false;
    bool stale = false;
    bool truncated = false;
    bool flipped = false;
    bool oversized = false;
    std::uint64_t detail = 0;  // which bit, how far back, how short
};

/// Asked once per call, before it. Must be thread-safe.
class FaultPolicy {
  public:
    virtual ~FaultPolicy() = default;
    virtual Trouble decide(StoreOperation operation, const std::string& key) = 0;
};

/// All troubles from one seed.
class SeededFaults : public FaultPolicy {
  public:
    SeededFaults(const FaultPlan& plan, std::uint64_t seed) : plan_(plan), random_(seed) {}
    Trouble decide(StoreOperation operation, const std::string& key) override;

  private:
    std::mutex mutex_;
    FaultPlan plan_;
    Random random_;
};

}  // namespace wisp
