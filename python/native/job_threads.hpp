// Work on an engine's memory, on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace wisp::python {

/// A part of a job that is worth a turn of a thread.
template <class Job>
struct JobUnit {
    const Job* job;
    std::size_t first;
    std::size_t past;
};

/// All jobs, each in units of at most `most`; job.count() says how much it is.
template <class Job>
std::vector<JobUnit<Job>> units_of(const std::deque<Job>& jobs, std::size_t most) {
    std::vector<JobUnit<Job>> units;
    for (const Job& job : jobs) {
        for (std::size_t at = 0; at < job.count(); at += most) {
            units.push_back({&job, at, std::min(at + most, job.count())});
        }
    }
    return units;
}

/// Calls body(i) for every i below `count`, on as many threads as help; those that take longest
/// should come first. What is thrown ends it, and is thrown again here.
template <class Body>
void for_each_job(std::size_t count, Body&& body) {
    constexpr unsigned kMost = 8;  // memory is the limit, and others of this host have work too
    const auto wanted = static_cast<unsigned>(
        std::min<std::size_t>(count, std::clamp(std::thread::hardware_concurrency(), 1U, kMost)));
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::exception_ptr thrown;
    const auto work = [&] {
        try {
            for (std::size_t i = next++; i < count; i = next++) body(i);
        } catch (...) {
            const std::scoped_lock lock(mutex);
            thrown = std::current_exception();
            next = count;
        }
    };
    {
        std::vector<std::jthread> helpers;
        try {
            for (unsigned i = 1; i < wanted; ++i) helpers.emplace_back(work);
        } catch (const std::system_error&) {
            // Those that are there do it all.
        }
        work();
    }
    if (thrown) std::rethrow_exception(thrown);
}

}  // namespace wisp::python
