// How many bytes have moved of those that are to move, while requests are still under way.
//
// A store tells of a request only when it is answered. Of large ones people want to know before: so
// what speaks to the network counts for the scope that its thread works in, and the code that knows
// how much there will be, told by a Progress, holds the tally.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "wisp/control.hpp"

namespace wisp {

/// Thread-safe once expect() was called. Without a Progress it does nothing.
class TransferTally {
  public:
    TransferTally(std::string phase, Progress told)
        : phase_(std::move(phase)), told_(std::move(told)) {}

    /// Begins anew.
    void expect(std::uint64_t total_bytes);
    /// Less than nothing: what had moved has to move again.
    void add(std::int64_t bytes);

  private:
    const std::string phase_;
    const Progress told_;
    std::mutex mutex_;
    std::int64_t moved_ = 0;
    std::uint64_t total_bytes_ = 0;
};

/// A piece on its way. Scopes end in the reverse order of their beginning, on the thread that began
/// them; what was not complete by then is taken back.
class TransferScope {
  public:
    /// Null: nobody counts.
    explicit TransferScope(TransferTally* tally);
    /// The scope of another thread, which must outlive this one: for work handed on.
    explicit TransferScope(TransferScope* handed_on);
    TransferScope(const TransferScope&) = delete;
    TransferScope& operator=(const TransferScope&) = delete;
    ~TransferScope();

    /// The piece has arrived, of `bytes`; whatever was told of it before.
    void complete(std::uint64_t bytes);

    /// The innermost scope of this thread; null when there is none.
    static TransferScope* innermost();
    /// For this thread's scope: so many more bytes have moved.
    static void moved(std::int64_t bytes);

  private:
    void count(std::int64_t bytes);

    TransferTally* tally_ = nullptr;
    TransferScope* handed_on_ = nullptr;
    TransferScope* before_;
    std::atomic<std::int64_t> told_ = 0;
    bool is_complete_ = false;
};

}  // namespace wisp
