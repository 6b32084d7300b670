// What all calls on runs take from Python: whom to believe, and who signs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "wisp/run.hpp"

namespace wisp::python {

/// Whom to believe, and which run.
struct Trust {
    std::vector<std::string> keys;  // as text or as paths of files; none: unsigned runs pass
    std::uint64_t min_serial = 0;   // certificates below it are revoked
    std::string run_id;             // empty: whichever run is at the address
};

/// Raises what PublicKey::load says.
RunOptions run_options(const Trust& trust);

using OptionalPath = std::optional<std::filesystem::path>;

/// Raises when there is none of that name.
Codec codec_named(const std::string& name);

/// Nothing when no key is named. Raises what the files of key and certificate give rise to.
std::optional<RunSigner> run_signer(const OptionalPath& key, const OptionalPath& certificate);

}  // namespace wisp::python
