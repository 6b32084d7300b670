// What all calls on runs take from Python: whom to believe, and who signs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "wisp/run.hpp"

namespace wisp::python {

/// Public keys as text or as paths of files. None: unsigned runs are accepted.
using Trust = std::vector<std::string>;

/// Raises what PublicKey::load says.
RunOptions run_options(const Trust& trust);

using OptionalPath = std::optional<std::filesystem::path>;

/// Nothing when no key is named. Raises what the files of key and certificate give rise to.
std::optional<RunSigner> run_signer(const OptionalPath& key, const OptionalPath& certificate);

}  // namespace wisp::python
