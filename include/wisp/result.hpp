// How every fallible call of wisp answers: a value, or an Error named by its cure.
//
// A kind exists only where a caller would act differently; the text says what failed, then the
// values, then the cure. Foreign text inside an error is already escaped for terminals and logs.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace wisp {

enum class ErrorKind {
    kInvalid,      // fix the call
    kNotFound,     // wait, or take an anchor
    kCorrupt,      // fetch again, then take an anchor
    kWrongBase,    // plan again from where you are
    kDenied,       // fix credentials or permissions
    kConflict,     // refresh and retry
    kFenced,       // stop: a newer writer owns the run
    kUnavailable,  // retry later
    kUnsupported,  // upgrade
    kNoSpace,      // free room on the disk
    kNoRun,        // check the address, or start a run there
    kGap,          // the history needed is gone: start over from an anchor
    kForked,       // stop and look: another history, a rollback, or another run
    kIncapable,    // use another store, or one writer only
    kInternal,     // report our bug
};

/// The name users see and match on, e.g. "wrong_base". Stable across releases.
std::string_view name_of(ErrorKind kind);

struct Error {
    ErrorKind kind = ErrorKind::kInternal;
    std::string text;
    /// How long the other side asked to be left alone, beside kUnavailable.
    std::optional<std::uint32_t> retry_after_ms = std::nullopt;
    /// What a caller's own code failed with, untouched on its way back to that caller.
    std::shared_ptr<const void> cause = nullptr;
};

template <class T>
class [[nodiscard]] Result : public std::expected<T, Error> {
  public:
    using std::expected<T, Error>::expected;
};

inline std::unexpected<Error> fail(ErrorKind kind, std::string text) {
    return std::unexpected<Error>(Error{kind, std::move(text)});
}

/// Foreign text made fit for a terminal or a log: escapes control characters (C0, DEL, C1) and
/// broken UTF-8 as \\xNN.
std::string printable(std::string_view foreign);

}  // namespace wisp
