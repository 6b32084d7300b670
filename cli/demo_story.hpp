// What has happened in a demo so far, gathered from what its processes tell.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "wisp/wisp.hpp"

namespace wisp::cli {

struct TrainedStep {
    std::uint64_t step = 0;
    std::uint64_t changed_elements = 0;
    std::uint64_t delta_bytes = 0;
    std::uint64_t anchor_bytes = 0;
    double train_seconds = 0;
    double publish_seconds = 0;
    std::string state;
};

struct FollowedMoves {
    bool started = false;
    bool finished = false;
    std::uint64_t step = 0;
    std::uint64_t fetched_bytes = 0;
    std::vector<double> pauses;  // of moves by deltas, in seconds
    std::vector<double> lags;    // from the commit to the follower, once it had joined
    double last_lag = 0;         // catching up or not
    double joined_at = 0;
    std::vector<std::uint64_t> via;  // steps it was at
    std::map<std::uint64_t, std::string> states;
};

struct DemoStory {
    std::uint64_t steps = 0;  // to be trained
    std::uint64_t total_elements = 0;
    std::uint64_t model_bytes = 0;
    std::uint64_t late_after = 0;  // the last follower joins after this step
    std::vector<TrainedStep> trained;
    std::vector<FollowedMoves> followers;

    void hear_trainer(const nlohmann::ordered_json& line);
    /// `now` in seconds, by any clock.
    void hear_follower(std::size_t index, const nlohmann::ordered_json& line, double now);
    const TrainedStep* newest() const { return trained.empty() ? nullptr : &trained.back(); }
    /// Of its states, how many are known to be the trainer's.
    std::size_t proven(const FollowedMoves& follower) const;
    /// kCorrupt when a follower was at a state that the trainer has not committed for that step.
    Result<void> check() const;
    std::uint64_t delta_bytes() const;
    double mean_changed() const;  // a share
};

/// 0 when there are none.
double median(std::vector<double> values);
double largest(const std::vector<double>& values);

}  // namespace wisp::cli
