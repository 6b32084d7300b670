// Proven changes over weights that lie in memory or in a cache: proven first, handed over then.
// Memory stays bounded: changes too many to be kept meanwhile are decoded a second time.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/limits.hpp"
#include "checkpoint/blocks.hpp"
#include "delta/delta_chain.hpp"
#include "wisp/delta.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

namespace wisp {

using ChangeSink = std::function<Result<void>(MovedBlock)>;

/// Whom changes are handed to: block by block, or all at once where they could be kept.
struct ChangeTakers {
    ChangeSink one;
    std::function<Result<void>(std::vector<MovedBlock>)> all = {};  // absent: one by one
};

/// The proof alone: what deliver_changes would report, and nothing is handed over. The result's
/// digest is told even when no delta vouches for it.
Result<ApplyReport> prove_changes(const Weights& base, const StateDigest& known,
                                  const std::vector<std::filesystem::path>& deltas,
                                  unsigned threads);

/// `known` is the digest of `base`, which is not computed again: the touched values must prove it.
/// `wanted` is where the deltas must lead: kCorrupt, and nothing is handed over, when they do not.
/// Blocks come in order, and the callee may overwrite the one it is told of.
Result<ApplyReport> deliver_changes(const Weights& base, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned threads, const ChangeTakers& take,
                                    const std::optional<StateDigest>& wanted = std::nullopt,
                                    std::uint64_t keep_bytes = limits::kChangeBufferBytes);

/// The same over weights that are at state `known` once what is staged lies over them; all changes
/// are kept, however many there are. kWrongBase: these weights are not what the deltas were made
/// from; kCorrupt: they are, and yet the deltas do not lead where they say.
Result<std::vector<MovedBlock>> staged_changes(const StagedWeights& base, const DeltaChain& chain,
                                               const StateDigest& known, unsigned threads);

/// Overwrites the files of a checkpoint nobody else looks at: no journal, no sync.
Result<void> patch_unguarded(const Checkpoint& checkpoint, std::span<const MovedBlock> changes);
Result<ApplyReport> patch_unguarded(const Checkpoint& checkpoint, const StateDigest& known,
                                    const std::vector<std::filesystem::path>& deltas,
                                    unsigned threads,
                                    const std::optional<StateDigest>& wanted = std::nullopt);

}  // namespace wisp
