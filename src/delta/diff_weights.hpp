// What changed between weights wherever they lie: found, kept, written as a delta, put onto another
// state.
#pragma once

#include <filesystem>
#include <optional>
#include <span>

#include "delta/change_buffer.hpp"
#include "delta/delta_writer.hpp"
#include "wisp/delta.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// As diff(), between weights wherever they lie. The schemas must be the same.
Result<DiffReport> diff_weights(const Weights& old_state, const Weights& new_state,
                                const std::filesystem::path& delta, const DiffOptions& options);
/// The stream is read once, from its beginning; what changed is also put into `kept`.
Result<DiffReport> diff_stream(const Weights& old_state, WeightStream& new_state,
                               const std::filesystem::path& delta, const DiffOptions& options,
                               Keep keep = Keep::kForGood, ChangeBuffer* kept = nullptr);

struct FoundChanges {
    StateDigest base;  // of the old state as it was read
    std::uint64_t changed_elements = 0;
};
/// What diff_stream() would write, put into `kept` alone: write_buffered() can write it later, when
/// the stream's memory is another's. When it is too much to be kept there is no result in `kept`.
Result<FoundChanges> find_changes(const Weights& old_state, WeightStream& new_state,
                                  const DiffOptions& options, ChangeBuffer& kept);

/// What others found to have changed since `base`, whose digest is `known`, put into `kept` for
/// write_buffered(). Only when that is too much is it written at once, and told of. kWrongBase when
/// the base did not hold the old bits they name.
Result<std::optional<DiffReport>> take_changes(const Weights& base, const StateDigest& known,
                                               ChangeStream& changes,
                                               const std::filesystem::path& delta,
                                               const DiffOptions& options, ChangeBuffer& kept);

/// What was found to have changed since `base`; old bits that are not named are taken from there.
Result<DiffReport> write_buffered(const Weights& base, const StateDigest& known,
                                  const ChangeBuffer& found, const std::filesystem::path& delta,
                                  const DiffOptions& options, Keep keep = Keep::kForGood);

/// Both deltas start from `base`, whose digest is `known`: what leads from the end of the first to
/// the end of the second. Reads only the blocks that either touches.
Result<DiffReport> rebase_delta(const Weights& base, const StateDigest& known,
                                const std::filesystem::path& first_delta,
                                const std::filesystem::path& second_delta,
                                const std::filesystem::path& output, const DiffOptions& options,
                                ChangeBuffer* kept = nullptr);

/// The same for two lists of changes that are kept: how many are left, and in `kept` which. They
/// hold no old bits.
Result<std::uint64_t> rebase_buffered(const Weights& base, std::span<const MovedBlock> first,
                                      std::span<const MovedBlock> second, unsigned threads,
                                      ChangeBuffer& kept);

}  // namespace wisp
