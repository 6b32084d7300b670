// Exceptions end where our threads begin: one that leaves a thread's function ends the process, and
// the process is often somebody's trainer.
#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "wisp/result.hpp"

namespace wisp {

/// Of the exception that is being handled.
inline Error error_of_exception() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        // Short enough to need no memory itself; memory may be there again later.
        return {ErrorKind::kUnavailable, "out of memory"};
    } catch (const std::exception& thrown) {
        return {ErrorKind::kInternal, std::string(thrown.what()) + "; report this as a bug"};
    }
}

/// What `work` answers with, or its exception as an Error. What is no std::exception passes: that
/// is how a thread is made to end.
template <class Work>
auto without_throwing(Work&& work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::exception&) {
        return std::unexpected(error_of_exception());
    }
}

/// One thread more, if the system has one to give.
template <class Work>
bool start_thread(std::vector<std::jthread>& threads, Work&& work) {
    try {
        threads.emplace_back(std::forward<Work>(work));
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

}  // namespace wisp
