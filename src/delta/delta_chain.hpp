// The way in: consecutive deltas over one base, run block by block, and the proofs around them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/blocks.hpp"
#include "delta/delta_decoder.hpp"
#include "delta/verified_delta.hpp"
#include "kernel/touched.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/delta.hpp"
#include "wisp/result.hpp"

namespace wisp {

/// One per thread.
struct ChainWorker {
    BlockDecoders decoders;
    BlockChanges net;     // what changed from the first state to the last
    BlockChanges staged;  // for those who lay changes over a block
    BlockChanges step;
    BlockChanges room;
    Bytes block;  // the last state, where somebody needed all of it
    bool has_block = false;
};

/// What running the deltas over a block did to the digests; sums of these are proven at the end.
struct ChainSums {
    StateDigest base;                  // of the old blocks, where it was asked for
    std::vector<TouchedSums> touched;  // one per delta
    std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> decoded;  // by delta, tensor
    std::uint64_t changed_elements = 0;

    void add(const ChainSums& other);
};

inline constexpr std::string_view kSlicesSuffix = ".slices";

class DeltaChain {
  public:
    /// Verifies every file, that each follows the one before, and that all fit the schema. Files
    /// named `*.slices` hold what `held` needs of a sliced delta, and no more.
    static Result<DeltaChain> open(const std::vector<std::filesystem::path>& paths,
                                   const Schema& schema, const HeldSlices* held = nullptr);

    std::size_t size() const { return bound_.size(); }
    const VerifiedDelta& delta(std::size_t i) const { return *deltas_[i]; }
    unsigned log2_block_elements() const { return log2_block_elements_; }
    /// Whether of every delta only tiles that somebody needs are here.
    bool all_partial() const;
    const TensorSeed& seed(std::size_t tensor) const { return seeds_[tensor]; }

    /// Drops the deltas that lead up to `base`, so that applying again what was applied is nothing
    /// to do. Returns how many.
    std::size_t skip_to(const StateDigest& base);

    bool touches(const BlockRange& range) const;

    /// Decodes all deltas over `old_block`, leaving the net changes in `worker`. False when no
    /// delta touches the block. Of swift deltas it costs what they change, not what the block
    /// holds.
    Result<bool> run(const BlockRange& range, const OverlaidBlock& old_block, ChainWorker& worker,
                     ChainSums& sums) const;

    /// The block that the last run() led to, if nothing lay over the old one.
    static std::span<const std::byte> new_block(std::span<const std::byte> old_block,
                                                ChainWorker& worker);

    struct Proof {
        bool base_proven = false;
        bool result_proven = false;
        std::optional<StateDigest> result;
    };
    /// `base` is absent when only the touched positions were to be proven. Of a partial delta it is
    /// the tiles that were proven, one by one, and its head names the states. kWrongBase when the
    /// base is not the one the deltas were made from, kCorrupt when the result is not theirs.
    Result<Proof> prove(const std::optional<StateDigest>& base, const ChainSums& sums) const;

    /// What a proof of this chain, and these sums, say of applying it.
    void tell(const Proof& proof, const ChainSums& sums, ApplyReport& report) const;

    /// Garbage may come from a damaged delta or from a wrong base; the digest of the base tells.
    Error explain(Error error, const Weights& base, unsigned threads) const;

  private:
    DeltaChain() = default;
    /// Each tensor of each sealed delta changed as many elements as its directory says.
    Result<void> check_counts(const ChainSums& sums) const;
    Error wrong_base(const VerifiedDelta& delta, const std::string& found) const;
    std::vector<std::unique_ptr<VerifiedDelta>> deltas_;
    std::vector<BoundDelta> bound_;
    std::vector<TensorSeed> seeds_;
    unsigned log2_block_elements_ = 0;
};

}  // namespace wisp
