// The steps of one training as its trainer sees them: trained on, or gone back to an older
// checkpoint and on from there.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/state_bank.hpp"

namespace wisp::sim {

struct TrainedStep {
    std::uint64_t step = 0;
    Model model;
};

class Training {
  public:
    /// `random` is the trainer's own, and outlives this.
    Training(const StateBank& bank, Random& random) : bank_(bank), random_(random) {}

    /// It begins at `held`, if that is a known state; no new step is below `least`.
    const TrainedStep& next(const StateDigest& held, std::uint64_t least);
    /// The next step is the same again.
    void repeat() { repeats_ = true; }
    bool began() const { return !history_.empty(); }
    const TrainedStep& last() const { return history_.back(); }

  private:
    const StateBank& bank_;
    Random& random_;
    std::vector<TrainedStep> history_;
    std::size_t at_ = 0;
    unsigned variant_ = 0;
    bool repeats_ = false;
};

}  // namespace wisp::sim
