#include "demo_story.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace wisp::cli {

void DemoStory::hear_trainer(const nlohmann::ordered_json& line) {
    if (line.value("event", "") != "published") return;
    TrainedStep step;
    step.step = line.at("step");
    step.changed_elements = line.at("changed_elements");
    step.delta_bytes = line.at("delta_bytes");
    step.anchor_bytes = line.at("anchor_bytes");
    step.train_seconds = line.at("train_seconds");
    step.publish_seconds = line.at("publish_seconds");
    step.state = line.at("state");
    trained.push_back(std::move(step));
}

void DemoStory::hear_follower(std::size_t index, const nlohmann::ordered_json& line, double now) {
    const std::string event = line.value("event", "");
    if (event != "applied" && event != "joined") return;
    FollowedMoves& follower = followers[index];
    follower.step = line.at("step");
    follower.fetched_bytes += line.at("fetched_bytes").get<std::uint64_t>();
    follower.via.push_back(follower.step);
    follower.states[follower.step] = line.at("state");
    follower.finished = follower.step == steps;
    if (event == "joined") {
        follower.joined_at = now;
        return;
    }
    follower.pauses.push_back(line.at("pause_seconds"));
    follower.last_lag = line.at("commit_age_ms").get<double>() / 1000;
    // Whoever joins late finds old commits, which says nothing of how fast it follows.
    if (now - follower.joined_at > follower.last_lag) follower.lags.push_back(follower.last_lag);
}

std::size_t DemoStory::proven(const FollowedMoves& follower) const {
    return static_cast<std::size_t>(std::ranges::count_if(trained, [&](const TrainedStep& step) {
        const auto held = follower.states.find(step.step);
        return held != follower.states.end() && held->second == step.state;
    }));
}

Result<void> DemoStory::check() const {
    for (std::size_t i = 0; i < followers.size(); ++i) {
        const FollowedMoves& follower = followers[i];
        if (!follower.finished) {
            return fail(ErrorKind::kCorrupt, fmt::format("follower {} ended at step {} of {}",
                                                         i + 1, follower.step, steps));
        }
        if (proven(follower) != follower.states.size()) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("follower {} was at {} states, of which only {} are the "
                                    "trainer's; please report this as a bug",
                                    i + 1, follower.states.size(), proven(follower)));
        }
    }
    return {};
}

std::uint64_t DemoStory::delta_bytes() const {
    std::uint64_t sum = 0;
    for (const TrainedStep& step : trained) sum += step.delta_bytes;
    return sum;
}

double DemoStory::mean_changed() const {
    double sum = 0;
    std::size_t count = 0;
    for (const TrainedStep& step : trained) {
        if (step.step == 0) continue;
        sum += static_cast<double>(step.changed_elements);
        ++count;
    }
    return count == 0 ? 0 : sum / static_cast<double>(count) / static_cast<double>(total_elements);
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

double largest(const std::vector<double>& values) {
    return values.empty() ? 0 : *std::ranges::max_element(values);
}

}  // namespace wisp::cli
