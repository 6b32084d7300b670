// A bucket as TRL writes it: anchors/step_000010.safetensors, deltas/step_000011.safetensors, and
// nothing else. doc/trl.md says what that costs: no commits, so one writer at a time, no
// signatures, and nothing but a listing tells what is new.
//
// Each step has a delta, an anchor, or both; it follows the step before it in the listing, whatever
// the numbers between. What wisp wrote is proven by the digests inside. Files of other writers name
// neither base nor checksum: they are held against every rule of the format, applied on trust, and
// reported as unproven. Failure kinds as of a run, without kNoRun, kFenced and signatures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp {

/// 32 hexadecimal digits. Such a bucket has no name of its own; its address must do.
std::string trl_run_id(const Location& where);

struct TrlPublishOptions {
    /// kPlain or kGap: TRL reads no other.
    Codec codec = Codec::kPlain;
    /// An anchor with every Nth step; 0: only with the first.
    std::uint64_t anchor_every = 10;
    unsigned threads = 0;
    unsigned parallel_fetches = 4;
    std::shared_ptr<Clock> clock = system_clock();
    Progress progress;
    std::stop_token stop = {};  // ends it early: wisp/control.hpp
};

/// Publishes `weights` as `step`, by default one after the newest, as a delta from the newest state
/// in the bucket. `baseline` is a cache of that state, brought up to date from the bucket first.
/// Where the newest state cannot be had any more, the step is an anchor without a delta.
/// kConflict when the bucket holds that step or a later one, unless it holds these very weights.
Result<PublishReport> publish_trl(const Location& where, Replica& baseline, const Weights& weights,
                                  std::optional<std::uint64_t> step,
                                  const TrlPublishOptions& options = {});

/// Follows such a bucket. No heartbeats, take_next() is catch_up(), and of FollowOptions::run only
/// the clock, the seed and the stop token count. catch_up() has failures of its own: kCorrupt, when
/// a file is damaged or not written to its end yet; the last good state is kept, and the next call
/// tries again, as follow() does. kGap: there is no anchor to start from, and no base. An empty
/// bucket is no failure.
Result<Follower> open_trl_follower(const Location& where, Replica& replica,
                                   const FollowOptions& options);

}  // namespace wisp
