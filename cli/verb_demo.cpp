#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "demo_memory.hpp"
#include "demo_processes.hpp"
#include "demo_proof.hpp"
#include "demo_room.hpp"
#include "demo_screen.hpp"
#include "process_stop.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunName = "run";

struct DemoArguments {
    Common common;
    std::uint64_t steps = 6;
    unsigned followers = 2;
    unsigned layers = 28;
    double learning_rate = 1e-6;
    std::string bucket;
    std::string dir;
    bool keep = false;
};

/// One demo, from the first process to the proof.
class Demo {
  public:
    Demo(const DemoArguments& arguments, DemoModel model, fs::path folder)
        : arguments_(arguments),
          model_(std::move(model)),
          folder_(std::move(folder)),
          run_(arguments.bucket.empty() ? (folder_ / kRunName).string() : arguments.bucket),
          screen_(arguments.common, story_) {
        story_.steps = arguments.steps;
        story_.total_elements = model_.schema.total_elements();
        story_.model_bytes = model_.schema.total_bytes();
        story_.followers.resize(arguments.followers);
        // Half-way, so that an anchor and some deltas are its way in; one alone is there from the
        // start.
        story_.late_after = arguments.followers > 1 ? arguments.steps / 2 : 0;
    }

    const std::string& run() const { return run_; }
    DemoScreen& screen() { return screen_; }

    Result<DemoProof> play() {
        screen_.begin(arguments_.learning_rate, arguments_.layers, run_);
        if (auto started = start_trainer(); !started) return std::unexpected(started.error());
        while (crew_.at_work() > 0) {
            auto heard =
                crew_.listen(100, [this](const std::string& who, nlohmann::ordered_json line) {
                    hear(who, std::move(line));
                });
            if (interrupted()) return fail(ErrorKind::kUnavailable, "stopped as asked");
            if (!heard) return std::unexpected(heard.error());
            if (auto started = start_followers(); !started) return std::unexpected(started.error());
            permit_steps();
            screen_.tick();
        }
        screen_.say("comparing every weight");
        if (auto checked = story_.check(); !checked) return std::unexpected(checked.error());
        std::vector<fs::path> files = {mapped_weights(trainer_folder())};
        for (std::size_t i = 0; i < story_.followers.size(); ++i) {
            files.push_back(mapped_weights(follower_folder(i)));
        }
        return prove_demo(model_, files, arguments_.steps, story_.newest()->state,
                          arguments_.common.threads);
    }

  private:
    void hear(const std::string& who, nlohmann::ordered_json line) {
        if (who == "trainer") {
            is_started_ = true;
            story_.hear_trainer(line);
        } else {
            story_.hear_follower(std::stoul(who.substr(who.find(' ') + 1)) - 1, line,
                                 watch_.seconds());
        }
        screen_.show(who, std::move(line));
    }

    DemoRole role(fs::path folder) const {
        return {&model_, run_, std::move(folder), arguments_.steps, arguments_.common.threads};
    }
    fs::path trainer_folder() const { return folder_ / "trainer"; }
    fs::path follower_folder(std::size_t index) const {
        return folder_ / fmt::format("follower-{}", index + 1);
    }

    Result<void> start_trainer() {
        auto gate = Gate::make();
        if (!gate) return std::unexpected(gate.error());
        gate_ = std::move(*gate);
        return crew_.start("trainer", [this](const Tell& tell) {
            return run_demo_trainer(role(trainer_folder()), [this] { gate_.wait(); }, tell);
        });
    }

    /// Each at its time: the first ones as soon as there is a run, the last one late.
    Result<void> start_followers() {
        if (!is_started_) return {};
        for (std::size_t i = 0; i < story_.followers.size(); ++i) {
            if (story_.followers[i].started) continue;
            const bool late = i + 1 == story_.followers.size() && story_.late_after > 0;
            const TrainedStep* newest = story_.newest();
            if (late && (newest == nullptr || newest->step < story_.late_after)) continue;
            story_.followers[i].started = true;
            const std::string name = fmt::format("follower {}", i + 1);
            auto started = crew_.start(name, [this, i](const Tell& tell) {
                return run_demo_follower(role(follower_folder(i)), tell);
            });
            if (!started) return started;
            screen_.say(name + " starts");
        }
        return {};
    }

    /// The trainer stays at most so far ahead of those who follow from the start, as asynchronous
    /// RL bounds the staleness of its samples.
    void permit_steps() {
        constexpr std::uint64_t kAhead = 2;
        std::uint64_t slowest = arguments_.steps;
        const std::size_t early = story_.followers.size() - (story_.late_after > 0 ? 1 : 0);
        for (std::size_t i = 0; i < early; ++i) {
            slowest = std::min(slowest, story_.followers[i].step);
        }
        const std::uint64_t allowed = std::min(arguments_.steps, slowest + kAhead);
        for (; permitted_ < allowed; ++permitted_) gate_.let_one_pass();
    }

    const DemoArguments& arguments_;
    DemoModel model_;
    fs::path folder_;
    std::string run_;
    DemoStory story_;
    DemoScreen screen_;
    Stopwatch watch_;
    Crew crew_;
    Gate gate_;
    bool is_started_ = false;
    std::uint64_t permitted_ = 0;
};

int run(const DemoArguments& arguments) {
    const Stopwatch watch;
    const DemoSize size{arguments.layers, arguments.followers, arguments.steps,
                        arguments.bucket.empty()};
    auto folder = DemoFolder::make(arguments.dir, size, arguments.keep);
    if (!folder) return report_error(arguments.common, "demo", folder.error());
    auto model = DemoModel::make(arguments.layers, static_cast<float>(arguments.learning_rate));
    if (!model) return report_error(arguments.common, "demo", model.error());
    Demo demo(arguments, std::move(*model), folder->path());
    const auto proof = demo.play();
    if (!proof) return report_error(arguments.common, "demo", proof.error());
    DemoEnding ending;
    ending.proof = *proof;
    ending.seconds = watch.seconds();
    if (arguments.keep || !arguments.bucket.empty()) ending.run = demo.run();
    if (arguments.keep) folder->keep_only(kRunName);
    demo.screen().finish(ending);
    return 0;
}

/// A range would let NaN through.
std::string check_rate(const std::string& text) {
    double rate = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, rate);
    const bool fits = error == std::errc() && stop == end && rate >= 1e-12 && rate <= 1;
    return fits ? "" : "give a number from 1e-12 to 1";
}

void add_options(Command& verb, DemoArguments& arguments) {
    verb.add_option("--steps", arguments.steps, "Optimizer steps after the first state")
        ->check(in_range(1, 100'000))
        ->capture_default_str();
    verb.add_option("--followers", arguments.followers, "Replicas; the last one joins half-way")
        ->check(in_range(1, 16))
        ->capture_default_str();
    verb.add_option("--layers", arguments.layers, "Layers of the model: fewer are a smaller one")
        ->check(in_range(1, 1000))
        ->capture_default_str();
    verb.add_option("--learning-rate", arguments.learning_rate, "Of AdamW")
        ->check(accepted_by(check_rate))
        ->default_str("1e-06");
    verb.add_option("--bucket", arguments.bucket,
                    "Address for the run, which stays there; a folder of the demo by default")
        ->type_name("URL");
    verb.add_option(
            "--dir", arguments.dir,
            "New or empty folder to work in; a temporary one where there is room by default")
        ->type_name("FOLDER");
    verb.add_flag("--keep", arguments.keep,
                  "Leave the run, for 'wisp dashboard'; everything is on disk then, and slower");
}

}  // namespace

void add_demo(Command& app, Outcome& outcome) {
    auto* verb =
        app.add_subcommand("demo", "Watch a trainer and its followers, all on this machine");
    auto arguments = std::make_shared<DemoArguments>();
    add_options(*verb, *arguments);
    add_common(*verb, arguments->common, true);
    verb->footer(
        R"(Real: the processes, the bucket, the deltas, the proofs, the times. At the end every weight of
everybody is compared with what training alone gives. Simulated: the training. A model of
Qwen3-0.6B's shape is drawn as a trained one (normal, scale by tensor), and each step moves fp32
masters by lr * (m/sqrt(v) + 0.01 * w), with m/sqrt(v) normal of spread 0.22 that is remembered for
16 steps: as AdamW with beta1 0.9 moves them where gradients are mostly noise. What changes comes
from rounding the masters to bf16; it is reported, not staged.

28 layers and 2 followers need 1.6 GB of memory (half of the masters; blocks in work), 4.9 GB for
files (bucket, trainer, a copy per follower), and about 20 s on two cores where the files are in
memory (/dev/shm, if there is room), up to a minute on a disk. --layers 1 needs 0.8 and 1.5 GB.

Examples:
  wisp demo
  wisp demo --layers 4 --steps 20 --keep
  wisp demo --bucket s3://weights/demo --learning-rate 3e-6)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
