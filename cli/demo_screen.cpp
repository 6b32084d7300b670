#include "demo_screen.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace wisp::cli {
namespace {

double share_of(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// The larger over the smaller, for people: "380x".
std::string times(std::uint64_t whole, std::uint64_t part) {
    return part == 0 ? "-" : fmt::format("{:.0f}x", share_of(whole, part));
}

constexpr const char* kBold = "\033[1m";
constexpr const char* kPlain = "\033[0m";

}  // namespace

DemoScreen::DemoScreen(const Common& common, const DemoStory& story)
    : common_(common),
      story_(&story),
      live_(!common.json && !common.quiet && ::isatty(STDOUT_FILENO) == 1) {}

void DemoScreen::begin(double learning_rate, unsigned layers, const std::string& run) {
    if (common_.json) {
        print_json({{"event", "begun"},
                    {"run", run},
                    {"layers", layers},
                    {"weights", story_->total_elements},
                    {"model_bytes", story_->model_bytes},
                    {"learning_rate", learning_rate},
                    {"steps", story_->steps},
                    {"followers", story_->followers.size()}});
    } else if (!common_.quiet) {
        fmt::print(
            "A model of Qwen3-0.6B's shape, {} layer{}: {} weights, {} in bf16.\n"
            "One process moves it as AdamW with fp32 masters would (learning rate {:g});\n"
            "{} {} it through {}\n",
            layers, layers == 1 ? "" : "s", human_count(story_->total_elements),
            human_bytes(story_->model_bytes), learning_rate, story_->followers.size(),
            story_->followers.size() == 1 ? "other follows" : "others follow", printable(run));
    }
    std::fflush(stdout);
}

void DemoScreen::show(const std::string& who, nlohmann::ordered_json line) {
    if (common_.json) {
        nlohmann::ordered_json out = {{"who", who}};
        out.update(line);
        print_json(out);
        std::fflush(stdout);
    } else if (live_) {
        draw();
    } else if (!common_.quiet) {
        if (who == "trainer") {
            print_trainer(line);
        } else {
            print_follower(who, line);
        }
        std::fflush(stdout);
    }
}

void DemoScreen::say(const std::string& what) {
    said_ = what;
    if (live_) {
        draw();
    } else if (!common_.json && !common_.quiet) {
        fmt::print("{:>5.1f} s  {}\n", watch_.seconds(), what);
        std::fflush(stdout);
    }
}

void DemoScreen::tick() {
    if (live_) draw();
}

void DemoScreen::print_trainer(const nlohmann::ordered_json& line) const {
    if (line.value("event", "") != "published") return;
    const TrainedStep& step = story_->trained.back();
    fmt::print("{:>5.1f} s  trainer: step {}, ", watch_.seconds(), step.step);
    if (step.delta_bytes == 0) {
        fmt::print("a whole model, {}", human_bytes(step.anchor_bytes));
    } else {
        fmt::print("{:.2f} % changed, delta {} ({} smaller)",
                   100 * share_of(step.changed_elements, story_->total_elements),
                   human_bytes(step.delta_bytes), times(story_->model_bytes, step.delta_bytes));
    }
    fmt::print("; trained in {}, published in {}\n", human_seconds(step.train_seconds),
               human_seconds(step.publish_seconds));
}

void DemoScreen::print_follower(const std::string& who, const nlohmann::ordered_json& line) const {
    const std::string event = line.value("event", "");
    fmt::print("{:>5.1f} s  {}: ", watch_.seconds(), who);
    if (event == "fault") {
        fmt::print("{}; going on\n", line.value("message", ""));
        return;
    }
    fmt::print("step {}, {}{} fetched", line.value("step", std::uint64_t{0}),
               event == "joined" ? "joined by an anchor, " : "",
               human_bytes(line.value("fetched_bytes", std::uint64_t{0})));
    if (event == "applied") {
        fmt::print(", {} deltas, pause {}, {} after the commit",
                   line.value("deltas_applied", std::uint64_t{0}),
                   human_seconds(line.value("pause_seconds", 0.0)),
                   human_seconds(line.value("commit_age_ms", 0.0) / 1000));
    }
    fmt::print("; proven\n");
}

std::string DemoScreen::follower_row(std::size_t index) const {
    const FollowedMoves& follower = story_->followers[index];
    if (!follower.started) {
        return fmt::format("follower {}   joins after step {}", index + 1, story_->late_after);
    }
    if (follower.via.empty()) {
        return fmt::format("follower {}   {}", index + 1,
                           story_->trained.empty() ? "waits for the first step" : "joining");
    }
    const std::uint64_t head = story_->newest() == nullptr ? 0 : story_->newest()->step;
    const std::uint64_t behind = head > follower.step ? head - follower.step : 0;
    const bool moved = !follower.pauses.empty();
    const std::size_t proven = story_->proven(follower);
    return fmt::format(
        "follower {:<3}{:>6}{:>9}{:>10}{:>10}{:>10}   {} of {}", index + 1, follower.step, behind,
        human_bytes(follower.fetched_bytes), moved ? human_seconds(follower.pauses.back()) : "-",
        moved ? human_seconds(follower.last_lag) : "-", proven, follower.states.size());
}

void DemoScreen::draw() {
    std::vector<std::string> rows;
    rows.emplace_back();
    rows.push_back(
        fmt::format("{}              step  changed     delta   smaller  training   "
                    "publishing{}",
                    kBold, kPlain));
    if (const TrainedStep* step = story_->newest(); step == nullptr) {
        rows.emplace_back("trainer       draws the weights and publishes them whole");
    } else {
        rows.push_back(fmt::format(
            "trainer     {:>6}{:>9}{:>10}{:>10}{:>10}   {}",
            fmt::format("{}/{}", step->step, story_->steps),
            step->delta_bytes == 0
                ? "all"
                : fmt::format("{:.2f} %",
                              100 * share_of(step->changed_elements, story_->total_elements)),
            human_bytes(step->delta_bytes == 0 ? step->anchor_bytes : step->delta_bytes),
            times(story_->model_bytes, step->delta_bytes), human_seconds(step->train_seconds),
            human_seconds(step->publish_seconds)));
    }
    rows.emplace_back();
    rows.push_back(
        fmt::format("{}              step   behind   fetched     pause       lag   "
                    "proven{}",
                    kBold, kPlain));
    for (std::size_t i = 0; i < story_->followers.size(); ++i) rows.push_back(follower_row(i));
    rows.push_back(fmt::format("{:>5.1f} s  {}", watch_.seconds(), said_));
    if (lines_ > 0) fmt::print("\033[{}A", lines_);
    for (const std::string& row : rows) fmt::print("\r\033[K{}\n", row);
    lines_ = static_cast<unsigned>(rows.size());
    std::fflush(stdout);
}

void DemoScreen::finish(const DemoEnding& ending) {
    said_ = "done";
    if (live_) draw();
    if (common_.json) {
        print_summary_json(ending);
    } else if (!common_.quiet) {
        print_summary(ending);
    }
}

void DemoScreen::print_summary(const DemoEnding& ending) const {
    const DemoStory& story = *story_;
    const std::uint64_t full = story.model_bytes * story.steps;
    std::vector<double> pauses;
    std::vector<double> lags;
    for (const FollowedMoves& follower : story.followers) {
        pauses.insert(pauses.end(), follower.pauses.begin(), follower.pauses.end());
        lags.insert(lags.end(), follower.lags.begin(), follower.lags.end());
    }
    const auto row = [](std::string_view name, const std::string& value) {
        fmt::print("  {:<22}{}\n", name, value);
    };
    fmt::print("\n");
    row("steps", fmt::format("{}, in {}", story.steps, human_seconds(ending.seconds)));
    row("whole models would be", fmt::format("{} per follower", human_bytes(full)));
    row("sent as deltas", fmt::format("{}, {} less", human_bytes(story.delta_bytes()),
                                      times(full, story.delta_bytes())));
    row("to join", fmt::format("an anchor of {} once per follower",
                               human_bytes(story.trained.front().anchor_bytes)));
    row("changed per step", fmt::format("{:.3f} % of the weights", 100 * story.mean_changed()));
    row("pause of a follower", fmt::format("median {}, longest {}", human_seconds(median(pauses)),
                                           human_seconds(largest(pauses))));
    row("commit to follower",
        lags.empty() ? "no commit came after the followers had joined"
                     : fmt::format("median {}, longest {}", human_seconds(median(lags)),
                                   human_seconds(largest(lags))));
    row("proof", fmt::format("{} x {} weights equal the trainer's, bit for bit",
                             story.followers.size(), human_count(story.total_elements)));
    row("", fmt::format("state {}, as committed", ending.proof.state));
    if (!ending.run.empty()) {
        fmt::print(
            "\nThe run is kept. To look at it, and to have a copy of the weights:\n"
            "  wisp dashboard {0}\n  wisp pull {0} --into policy\n",
            printable(ending.run));
    } else {
        fmt::print("\nNothing is left of it; with --keep the run stays, for 'wisp dashboard'.\n");
    }
}

void DemoScreen::print_summary_json(const DemoEnding& ending) const {
    const DemoStory& story = *story_;
    const std::uint64_t full = story.model_bytes * story.steps;
    nlohmann::ordered_json followers = nlohmann::ordered_json::array();
    for (const FollowedMoves& follower : story.followers) {
        followers.push_back({{"step", follower.step},
                             {"joined_at_step", follower.via.front()},
                             {"states", follower.states.size()},
                             {"states_proven", story.proven(follower)},
                             {"fetched_bytes", follower.fetched_bytes},
                             {"median_pause_seconds", median(follower.pauses)},
                             {"longest_pause_seconds", largest(follower.pauses)},
                             {"lags_measured", follower.lags.size()},
                             {"median_lag_seconds", median(follower.lags)},
                             {"longest_lag_seconds", largest(follower.lags)}});
    }
    print_json({{"verb", "demo"},
                {"ok", true},
                {"steps", story.steps},
                {"weights", story.total_elements},
                {"full_bytes", full},
                {"delta_bytes", story.delta_bytes()},
                {"anchor_bytes", story.trained.front().anchor_bytes},
                {"ratio", share_of(full, story.delta_bytes())},
                {"mean_changed", story.mean_changed()},
                {"followers", followers},
                {"state", ending.proof.state},
                {"compared_weights", ending.proof.compared_weights},
                {"bit_exact", true},
                {"run", ending.run},
                {"seconds", ending.seconds}});
}

}  // namespace wisp::cli
