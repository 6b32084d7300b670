// What long work needs around it: a clock, a progress callback, and a way to end it early.
//
// No decision about safety ever rests on a clock: time only paces polling, retries and expiry.
//
// Work ends early by a std::stop_token, given in the options of a call or by a scope. Nothing here
// is of the process: work heeds the tokens of the scopes it runs in and no others. A call whose
// options hold a token opens a scope for it, and whatever works for that call on other threads
// works in the same scopes. Where several stand around each other, any of them ends the work, which
// then cleans up after itself and answers kUnavailable. Blocks, retries, pauses and transfers look
// every few milliseconds; a store written by others is waited for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>

namespace wisp {

using Milliseconds = std::chrono::milliseconds;

class Clock {
  public:
    virtual ~Clock() = default;
    /// Wall-clock time since 1970, in milliseconds. May jump.
    virtual std::int64_t now_ms() = 0;
    /// Returns early, within a tenth of a second, when the caller's work is to end.
    virtual void sleep_for(Milliseconds duration) = 0;
};

/// The machine's own clock; thread-safe.
std::shared_ptr<Clock> system_clock();

/// Called from one thread at a time, often; must return quickly.
using Progress = std::function<void(std::string_view phase, std::uint64_t done_bytes,
                                    std::uint64_t total_bytes)>;

/// What this thread asks of wisp while the scope stands ends when its token says so. Scopes end in
/// the reverse order of their beginning, on the thread that began them.
class StopScope {
  public:
    /// A token that nobody can stop changes nothing.
    explicit StopScope(std::stop_token stop);
    /// The scopes of another thread, which must outlive this one: for work handed on.
    explicit StopScope(const StopScope* handed_on);
    /// For what is left to do after a stop: heeds no scope around it, and ends after `within`.
    explicit StopScope(Milliseconds within);
    StopScope(const StopScope&) = delete;
    StopScope& operator=(const StopScope&) = delete;
    ~StopScope();

    /// The innermost scope of this thread, to be handed on; null when there is none.
    static const StopScope* innermost();

  private:
    friend bool stopped();

    const StopScope* before_;  // innermost when this one began
    const StopScope* around_;  // heeded too; null after a farewell
    std::stop_token stop_;
    std::optional<std::chrono::steady_clock::time_point> end_;
};

/// Whether the work of this thread is to end.
bool stopped();

}  // namespace wisp
