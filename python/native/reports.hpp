// What the library's reports look like from Python: attributes that can only be read, digests as
// text.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "calls.hpp"
#include "wisp/state.hpp"

namespace wisp::python {

/// A getter for a digest, as text.
template <class Report>
auto digest_text(StateDigest Report::* member) {
    return [member](const Report& report) { return to_text(report.*member); };
}

template <class Report>
auto digest_text(std::optional<StateDigest> Report::* member) {
    return [member](const Report& report) -> std::optional<std::string> {
        if (!(report.*member)) return std::nullopt;
        return to_text(*(report.*member));
    };
}

/// A digest back from its text; raises Invalid.
inline StateDigest digest_from(const std::string& text) {
    const auto digest = parse_digest(text);
    if (!digest) raise(Error{ErrorKind::kInvalid, "a state digest has 32 hexadecimal digits"});
    return *digest;
}

}  // namespace wisp::python
