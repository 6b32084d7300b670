// Files as a commit names them: which objects of the bucket they are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace wisp {

/// One object of the bucket.
struct StoredPart {
    std::string key;
    std::uint64_t bytes = 0;
    std::string sha256;
    friend bool operator==(const StoredPart&, const StoredPart&) = default;
};

/// How a file begins, so that it can be proven without the rest: the header and directory of a
/// sliced delta.
struct StoredHead {
    std::uint64_t bytes = 0;
    std::string sha256;
    friend bool operator==(const StoredHead&, const StoredHead&) = default;
};

/// A file, cut into one or more objects in order; or interleaved of them: delta/interleave.hpp.
struct StoredFile {
    std::string name;  // inside a checkpoint folder; empty for deltas
    std::string at;    // path to the run that holds it, "../other"; empty: this run
    std::vector<StoredPart> parts;
    bool interleaved = false;
    std::optional<StoredHead> head = std::nullopt;  // of sliced deltas
    std::uint64_t bytes() const;                    // in the bucket
    friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

}  // namespace wisp
