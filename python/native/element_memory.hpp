// Elements of an engine's memory by where a checkpoint has them, as Python hands them over.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "arrays.hpp"
#include "calls.hpp"

namespace wisp::python {

inline constexpr std::size_t kAhead = 24;  // how far what is needed is asked for before it is

/// load_plan.Piece: (size, stride in the checkpoint, stride in the target) by falling stride.
struct PieceMap {
    std::int64_t source = 0;
    std::int64_t target = 0;
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> dims;

    std::int64_t end() const {
        std::int64_t last = source;
        for (const auto& [size, stride, step] : dims) last += (size - 1) * stride;
        return last + 1;
    }
    /// Raises Invalid unless all of it lies in a target of so many elements.
    void check_inside(std::size_t elements) const {
        std::int64_t last = target;
        for (const auto& [size, stride, step] : dims) last += (size - 1) * step;
        if (target < 0 || last < 0 || static_cast<std::size_t>(last) >= elements) {
            raise(Error{ErrorKind::kInvalid, "a piece leads out of its target"});
        }
    }
    /// Its elements follow each other in both.
    bool is_run() const {
        return dims.size() == 1 && std::get<1>(dims[0]) == 1 && std::get<2>(dims[0]) == 1;
    }
    /// Where in the target an element of the checkpoint is; negative: not in this piece.
    std::int64_t find(std::int64_t position) const {
        std::int64_t rest = position - source;
        std::int64_t offset = target;
        if (rest < 0) return -1;
        for (const auto& [size, stride, step] : dims) {
            const std::int64_t at = stride == 1 ? rest : rest / stride;
            if (at >= size) return -1;
            offset += at * step;
            rest -= at * stride;
        }
        return rest == 0 ? offset : -1;
    }
};

/// Python's memory, read or written as elements of one type; none of it for None.
class ElementBuffer {
  public:
    ElementBuffer(nb::handle object, bool writable) {
        if (!object.is_none() && !buffer_.hold(object, writable)) {
            raise(Error{ErrorKind::kInvalid, "elements must lie in contiguous memory"});
        }
    }
    template <class T>
    std::span<T> as() const {
        const auto bytes = buffer_.bytes();
        return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    std::size_t size() const { return buffer_.bytes().size(); }

  private:
    HeldBuffer buffer_;
};

/// Calls body(T{}) with the unsigned type of that width.
template <class Body>
auto with_width(std::size_t width, Body&& body) {
    switch (width) {
        case 1: return body(std::uint8_t{});
        case 2: return body(std::uint16_t{});
        case 4: return body(std::uint32_t{});
        default: return body(std::uint64_t{});
    }
}

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
