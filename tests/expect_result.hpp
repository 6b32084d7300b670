// Results in tests: the value, or a failure that says the error.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "wisp/result.hpp"

namespace wisp::testing {

/// The value; an error ends the test.
template <class T>
T value_of(Result<T> result) {
    if (!result) {
        throw std::runtime_error(std::string(name_of(result.error().kind)) + ": " +
                                 result.error().text);
    }
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// "ok", or the name of the error's kind: what a test compares.
template <class T>
std::string outcome_of(const Result<T>& result) {
    return result ? "ok" : std::string(name_of(result.error().kind));
}

/// The error's text, empty when there is none.
template <class T>
std::string text_of(const Result<T>& result) {
    return result ? std::string() : result.error().text;
}

}  // namespace wisp::testing
