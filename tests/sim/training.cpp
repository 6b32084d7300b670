#include "sim/training.hpp"

#include <algorithm>

namespace wisp::sim {

const TrainedStep& Training::next(const StateDigest& held, std::uint64_t least) {
    if (history_.empty()) {
        const Model* known = bank_.find(held);
        history_.push_back({least, known != nullptr ? *known : make_model(variant_, random_)});
        if (known != nullptr) history_.back().model.train(0.05, random_);
        at_ = 0;
        return history_.back();
    }
    if (repeats_) {
        repeats_ = false;
        return history_[at_];
    }
    if (at_ > 0 && random_.chance(0.06)) {
        // Back to an older checkpoint; what follows may come out the same again.
        at_ = random_.below(at_);
        if (random_.chance(0.5)) history_.resize(at_ + 1, history_[at_]);
        return history_[at_];
    }
    if (at_ + 1 < history_.size()) return history_[++at_];
    TrainedStep next = history_.back();
    next.step = std::max(next.step + 1 + random_.below(3), least);
    if (random_.chance(0.02)) {
        next.model = make_model(++variant_, random_);
    } else if (!random_.chance(0.08)) {
        next.model.train(random_.chance(0.1) ? 0.9 : 0.05, random_);
    }
    history_.push_back(std::move(next));
    return history_[++at_];
}

}  // namespace wisp::sim
