// How a call of Python enters C++ and how its errors come back.
//
// Long work runs without the interpreter lock and ends early on Ctrl-C. A library Error becomes the
// exception of its kind; an exception that a Python callback raised inside the library becomes an
// Error on the way through it, and that very exception again at the surface.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "interpreter.hpp"
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
/// signal whose handler raises (Ctrl-C) ends this work and no other, and its exception is thrown.
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
/// is the error's cause, which raise() throws again. Needs the interpreter lock.
Error error_of(nb::python_error& raised, std::string_view during);

/// Calls back into Python from the library. `call` runs with the interpreter lock.
template <class T, class Call>
Result<T> call_python(std::string_view during, Call&& call) {
    const PyGILState_STATE entered = enter_python();
    std::optional<Result<T>> result;
    try {
        result.emplace(call());
    } catch (nb::python_error& raised) {
        result.emplace(std::unexpected(error_of(raised, during)));
    } catch (const nb::cast_error&) {
        result.emplace(fail(ErrorKind::kInvalid,
                            std::string(during) + " answered with another type than it must"));
    } catch (const abi::__forced_unwind&) {
        wait_for_the_end();
    } catch (...) {
        leave_python(entered);
        throw;
    }
    leave_python(entered);
    return std::move(*result);
}

/// Calls `tell` with a Told of what is the library's, and ends it: code that keeps it is told so.
template <class Told, class Subject, class Tell>
void tell_while_it_lasts(const Subject& subject, Tell&& tell) {
    const auto told = std::make_shared<Told>(&subject);
    try {
        tell(told);
    } catch (...) {
        told->end();
        throw;
    }
    told->end();
}

}  // namespace wisp::python
