// Where a thread of ours begins: no exception may leave it, for that would end the process.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "wisp/result.hpp"

namespace wisp {

/// What `work` answers; an exception becomes an error that says what was going on.
template <class Work>
auto caught(const std::string& during, Work&& work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        return fail(ErrorKind::kUnavailable, during + " ran out of memory; free some, and retry");
    } catch (const std::exception& thrown) {
        return fail(ErrorKind::kInternal, during + " failed: " + thrown.what());
    }
}

}  // namespace wisp
