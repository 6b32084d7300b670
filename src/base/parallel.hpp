// Work on many independent pieces, with results taken in order and few of them alive at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/limits.hpp"
#include "base/without_throwing.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

inline constexpr const char* kStoppedAsAsked = "stopped as asked; nothing was left behind";

/// 0 means one per core.
unsigned thread_count(unsigned asked);

/// Calls produce(i, worker) for i in [0, count) on `threads` workers and consume(i, value) for each
/// in ascending order, on one worker at a time. At most a few values per worker wait, so memory is
/// bounded. Ends at the first error in order of i, and returns it; an exception is one. Workers
/// heed the caller's StopScope. With one thread everything runs on the caller's.
template <class T>
Result<void> ordered_parallel(std::uint64_t count, unsigned threads,
                              const std::function<Result<T>(std::uint64_t, unsigned)>& produce,
                              const std::function<Result<void>(std::uint64_t, T)>& consume) {
    if (threads <= 1 || count <= 1) {
        for (std::uint64_t i = 0; i < count; ++i) {
            if (stopped()) return fail(ErrorKind::kUnavailable, kStoppedAsAsked);
            Result<T> value = without_throwing([&] { return produce(i, 0); });
            if (!value) return std::unexpected(std::move(value).error());
            Result<void> taken = without_throwing([&] { return consume(i, std::move(*value)); });
            if (!taken) return taken;
        }
        return {};
    }
    const std::uint64_t window = std::uint64_t{4} * threads;
    std::mutex mutex;
    std::condition_variable room;
    std::uint64_t next = 0;      // to be produced
    std::uint64_t consumed = 0;  // all below have been consumed
    bool consuming = false;
    std::vector<std::optional<Result<T>>> waiting(window);
    std::optional<Error> failure;

    const auto work = [&](unsigned worker) {
        std::unique_lock lock(mutex);
        for (;;) {
            room.wait(lock, [&] { return failure || next >= count || next < consumed + window; });
            if (failure || next >= count) return;
            const std::uint64_t mine = next++;
            lock.unlock();
            Result<T> value = stopped() ? Result<T>(fail(ErrorKind::kUnavailable, kStoppedAsAsked))
                                        : without_throwing([&] { return produce(mine, worker); });
            lock.lock();
            waiting[mine % window].emplace(std::move(value));
            // The thread that finds the next value in order consumes; the others go on producing.
            while (!consuming && !failure && consumed < count && waiting[consumed % window]) {
                Result<T> ready = std::move(*waiting[consumed % window]);
                waiting[consumed % window].reset();
                if (!ready) {
                    failure = std::move(ready).error();
                    break;
                }
                consuming = true;
                const std::uint64_t index = consumed;
                lock.unlock();
                Result<void> taken =
                    without_throwing([&] { return consume(index, std::move(*ready)); });
                lock.lock();
                consuming = false;
                if (!taken) failure = std::move(taken).error();
                ++consumed;
                room.notify_all();
            }
            if (failure) room.notify_all();
        }
    };
    {
        const StopScope* const scope = StopScope::innermost();
        std::vector<std::jthread> workers;
        for (unsigned worker = 1; worker < threads; ++worker) {
            const bool started = start_thread(workers, [&work, scope, worker] {
                const StopScope handed_on(scope);
                work(worker);
            });
            if (!started) break;  // those that are there do it all
        }
        work(0);
    }
    if (failure) return std::unexpected(std::move(*failure));
    return {};
}

}  // namespace wisp
