// Proven changes over weights that lie in memory or in a cache: proven in a first pass, handed over
// in a second. Memory stays bounded, and nothing is handed over before everything is proven.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/blocks.hpp"
#include "wisp/change_set.hpp"
#include "wisp/delta.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// In order of the blocks, on one thread at a time. Blocks after it have not been read yet only in
/// the sense that matters: whoever takes a block may overwrite it.
using TakeChanges = std::function<Result<void>(const BlockRange&, const BlockChanges&)>;

/// The proof alone: what deliver_changes would report, and nothing is handed over. The result's
/// digest is told even when no delta vouches for it.
Result<ApplyReport> prove_changes(const Weights& base, const StateDigest& known,
                                  const std::vector<std::filesystem::path>& deltas,
                                  unsigned threads);

/// `known` is the digest of `base`, which is not computed again: the touched values must prove it.
Result<ApplyReport> deliver_changes(const Weights& base, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned threads, const TakeChanges& take);

/// Overwrites the files of a checkpoint nobody else looks at: no journal, no sync.
Result<ApplyReport> patch_unguarded(const Checkpoint& checkpoint, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned threads);

}  // namespace wisp
