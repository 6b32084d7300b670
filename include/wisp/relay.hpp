// A replica without weights: another process holds them, and is asked for what a step touches.
//
// Deltas of the codec swift name their positions without a base, and their values follow from the
// old bits at those positions. So a follower for engines that hold the weights in their own memory
// fetches and verifies every step, and keeps what is in proportion to the changes. It decodes and
// proves the step as well, or hands the deltas to holders that do so over what they hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wisp/replica.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

namespace wisp {

struct RelayReplicaOptions {
    unsigned threads = 0;
    /// For fetched files and whole states; a temporary folder when empty.
    std::filesystem::path scratch;
    /// Room for the words of these tensors, side by side as room_bytes_of() says. It stays until
    /// the next call, and may hold anything.
    std::function<Result<std::span<std::byte>>(std::span<const TouchedTensor>)> room;
    /// The indices are in the room: puts the words, as they are in state `at`, after them. The last
    /// word of a tensor may be short: what is there of it already, zeros, stays.
    std::function<Result<void>(const StateDigest& at)> ask;
    /// Who was asked last, for errors.
    std::function<std::string()> asked;
    /// Which part of the weights their holders have, if not all. Of sliced deltas only the tiles in
    /// which some of it lies are then fetched, and asked for tile by tile; other deltas are
    /// kUnsupported. Null or absent: they hold everything.
    std::function<std::shared_ptr<const HeldSlices>()> held;
    /// The same of a state of these tensors, before it is fetched whole: of a sliced anchor, and of
    /// sliced deltas from it on, no more is fetched, and what on_adopt() is told of has holes for
    /// the rest. It may wait for those who will hold it.
    std::function<std::shared_ptr<const HeldSlices>(const Schema&)> held_of;
    /// Asked first whether the holders of the weights decode these deltas themselves, each over its
    /// own memory: then it is they who prove them (decode_staged), and nothing else here is called
    /// for the step. The files are the callee's from then on. Absent: they do not.
    std::function<Result<bool>(const std::vector<std::filesystem::path>& deltas,
                               const ReplicaRecord& after)>
        hand_over;
    /// Told of each move when it is proven; if it fails, the replica stays where it was. `weights`
    /// have a schema and no bytes.
    std::function<Result<void>(const ReplicaMove&)> on_move;
    /// Told of each whole state, in a folder inside scratch() that is the callee's from then on.
    std::function<Result<void>(const std::filesystem::path& folder, const Schema& schema,
                               const ReplicaRecord& at)>
        on_adopt;
};

/// Its apply() takes deltas of the codec swift alone: kUnsupported. Old bits that are not those the
/// deltas were made from are kWrongBase.
Result<std::unique_ptr<Replica>> open_relay_replica(RelayReplicaOptions options);

/// What consecutive deltas of the codec swift change of weights that are at state `from` once what
/// is staged lies over them: proven, and proven to lead to `to`. kWrongBase: somebody else wrote to
/// that memory, which is `whose`. kCorrupt: it is the deltas that are wrong.
Result<std::vector<MovedBlock>> decode_staged(const StagedWeights& weights,
                                              const std::vector<std::filesystem::path>& deltas,
                                              const StateDigest& from, const StateDigest& to,
                                              const std::string& whose, unsigned threads = 0);

/// Runs of elements, ascending: the first, and one past the last.
using ElementRuns = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
struct TileRuns {
    ElementRuns needed;   // all of the tiles of which something is held
    ElementRuns missing;  // and what of those is not: a relay of sliced deltas keeps it itself
};
/// kInvalid when a part does not lie in the tensor.
Result<TileRuns> runs_of_tiles(const TensorInfo& tensor, unsigned slices,
                               std::span<const HeldPart> parts);

/// What these words of a tensor, the last one perhaps short, add to the digest of a state.
StateDigest digest_of_words(const TensorInfo& tensor, std::uint64_t first_word,
                            std::span<const std::byte> words);
/// The same of words that do not follow each other; `indices` and `words` are of one length.
StateDigest digest_of_words(const TensorInfo& tensor, std::span<const std::uint32_t> indices,
                            std::span<const std::uint64_t> words);

}  // namespace wisp
