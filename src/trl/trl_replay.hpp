// Files of TRL's layout turned into moves of weights: what a replica takes live, and a checkpoint
// folder that is put together beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trl/trl_bucket.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/replica.hpp"

namespace wisp {

/// A state of a bucket in TRL's layout.
struct TrlStand {
    std::uint64_t step = 0;
    StateDigest state;
    bool proven = false;  // its writer vouches for the digest
};
/// Steps count as commits from 1 on. There are no epochs.
ReplicaRecord trl_record(const std::string& run, const TrlStand& stand);

/// Makes an anchor a checkpoint in `folder` that any loader takes. kCorrupt when it is damaged, or
/// lacks a tensor of `whole`: TRL leaves out those that have not changed.
Result<TrlStand> unpack_anchor(TrlBucket& bucket, const TrlObject& object,
                               const std::optional<Schema>& whole,
                               const std::filesystem::path& folder, unsigned threads);

/// The files of a base for `folder`, or only those beside its weights.
Result<void> copy_base(const std::filesystem::path& base, const std::filesystem::path& folder,
                       bool without_weights);

/// A delta that leads from `current` to an object's state: the file itself, or for an anchor what
/// it changes. Tensors that an anchor lacks are taken to be unchanged, as TRL leaves them out.
struct TrlMove {
    std::filesystem::path delta;
    bool vouched = false;  // an anchor with the digest of its state, which was found right
};
Result<TrlMove> move_from(const Weights& current, const TrlObject& object,
                          const std::filesystem::path& file, unsigned threads);

struct TrlReached {
    TrlStand at;
    bool anywhere = false;  // false: at no step of the bucket yet
    std::uint64_t deltas = 0;
    std::uint64_t changed_elements = 0;
    std::optional<Error> stopped;  // a damaged or lost file; all before it was taken in
};

/// Takes the checkpoint in `folder`, at `from`, along `moves`. While it is at no step yet, deltas
/// that do not start from its state are passed over. kWrongBase, kInvalid: it is no start for them.
Result<TrlReached> replay_trl(TrlBucket& bucket, const std::filesystem::path& folder,
                              TrlReached from, const std::vector<TrlObject>& moves,
                              unsigned threads);

}  // namespace wisp
