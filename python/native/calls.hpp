// How a call of Python enters C++ and how its errors come back.
//
// Long work runs without the interpreter lock and ends early on Ctrl-C. A library Error becomes the
// exception of its kind; an exception that a Python callback raised inside the library becomes an
// Error on the way through it, and that very exception again at the surface.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "wisp/result.hpp"

namespace wisp::python {

namespace nb = nanobind;

/// Needs the interpreter lock.
[[noreturn]] void raise(const Error& error);

template <class T>
T value_of(Result<T> result) {
    if (!result) raise(result.error());
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// The kind of that name; kInternal if there is none.
ErrorKind kind_named(std::string_view name);

/// Runs `work` without the interpreter lock, which the caller holds. On Python's main thread a
/// signal whose handler raises (Ctrl-C) asks all long work to stop, and its exception is thrown.
void run_unlocked(const std::function<void()>& work);

/// The value of `work`, which answers with a Result and must not touch Python objects.
template <class Work>
auto long_call(Work&& work) {
    std::optional<decltype(work())> result;
    run_unlocked([&] { result.emplace(work()); });
    return value_of(std::move(*result));
}

/// What the library is told when Python code raised: exceptions of wisp keep their kind, those of
/// the operating system get the kind of their cure, all others are kInternal. The exception itself
/// is kept for raise(). Needs the interpreter lock.
Error keep_exception(nb::python_error& raised, std::string_view during);

/// Calls back into Python from the library. `call` runs with the interpreter lock.
template <class T, class Call>
Result<T> call_python(std::string_view during, Call&& call) {
    nb::gil_scoped_acquire lock;
    try {
        return call();
    } catch (nb::python_error& raised) {
        return std::unexpected(keep_exception(raised, during));
    } catch (const nb::cast_error&) {
        return fail(ErrorKind::kInvalid, std::string(during) +
                                             " answered with another type than "
                                             "it must");
    }
}

}  // namespace wisp::python
