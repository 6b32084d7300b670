// Early return of an Error, so that the good path reads straight down.
#pragma once

#include <utility>

#include "wisp/result.hpp"

#define WISP_CONCAT_INNER(x, y) x##y
#define WISP_CONCAT(x, y) WISP_CONCAT_INNER(x, y)

/// Returns the error of `expression`, if any.
#define WISP_TRY(expression)                                          \
    do {                                                              \
        if (auto WISP_CONCAT(wisp_try_, __LINE__) = (expression);     \
            !WISP_CONCAT(wisp_try_, __LINE__))                        \
            return std::unexpected<::wisp::Error>(                    \
                std::move(WISP_CONCAT(wisp_try_, __LINE__)).error()); \
    } while (false)

/// Declares `declaration` from the value of `expression`, or returns its error.
#define WISP_ASSIGN(declaration, expression)                        \
    auto WISP_CONCAT(wisp_value_, __LINE__) = (expression);         \
    if (!WISP_CONCAT(wisp_value_, __LINE__))                        \
        return std::unexpected<::wisp::Error>(                      \
            std::move(WISP_CONCAT(wisp_value_, __LINE__)).error()); \
    declaration = std::move(*WISP_CONCAT(wisp_value_, __LINE__))
