// Weights in files that a replica joins with: filled by a sliced delta from zeros, and taken on by
// others, all of it or the parts that a host holds.
#pragma once

#include <filesystem>
#include <vector>

#include "wisp/checkpoint.hpp"
#include "wisp/delta.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// Fills files whose tensors are zeros (checkpoint/zeroed_files.hpp) with the state that `delta`
/// leads to, a sliced delta from zeros. With `held` the tiles in which some of that lies are there,
/// each is proven by itself, and the rest stays zero; without it the caller proves the state.
/// Returns the state that the delta says it leads to. kWrongBase: it does not start from zeros.
Result<StateDigest> fill_zeroed(const Checkpoint& zeroed, const std::filesystem::path& delta,
                                const HeldSlices* held, unsigned threads);

/// As patch_unguarded(), of deltas of which only what `held` needs is there, over weights of which
/// no more is known either. kUnsupported when one is not sliced.
Result<ApplyReport> patch_slices(const Checkpoint& checkpoint, const StateDigest& known,
                                 const std::vector<std::filesystem::path>& deltas,
                                 const HeldSlices& held, unsigned threads);

}  // namespace wisp
