// The objects of a bucket in TRL's layout: which there are, and how they get onto this disk.
//
// Names carry no hashes, so an object is as good as its own rules prove it to be. One thread at a
// time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "follow/object_fetcher.hpp"
#include "wisp/schema.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct TrlObject {
    enum class Kind { kAnchor, kDelta };
    Kind kind = Kind::kDelta;
    std::uint64_t step = 0;
    ObjectInfo info;

    std::string name() const;  // anchors/… or deltas/…
};

class TrlBucket {
  public:
    /// `folder` is made when needed, and is this bucket's alone.
    TrlBucket(const Location& where, std::filesystem::path folder, unsigned parallel);

    const Location& where() const { return where_; }
    /// Those of steps above `after`, ascending by step.
    Result<std::vector<TrlObject>> list(TrlObject::Kind kind, std::optional<std::uint64_t> after);
    /// As large as it was listed. kGap when it is gone, kCorrupt when it has become shorter.
    Result<std::filesystem::path> fetch(const TrlObject& object);
    /// By the header alone.
    Result<Schema> schema_of(const TrlObject& anchor);
    FetchCounts take_counts() { return std::exchange(counts_, {}); }
    /// Removes everything fetched.
    void clear();

  private:
    Location where_;
    std::filesystem::path folder_;
    unsigned parallel_;
    FetchCounts counts_;
};

/// What leads on: of each step its delta, or its anchor where it has none; ascending by step.
std::vector<TrlObject> moves_of(const std::vector<TrlObject>& deltas,
                                const std::vector<TrlObject>& anchors);

}  // namespace wisp
