#include "publish_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "diagnostics.hpp"
#include "live_line.hpp"
#include "metrics.hpp"
#include "process_stop.hpp"
#include "publish_checks.hpp"

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDoublings = 6;
constexpr Milliseconds kLongestWait(60'000);

/// Of one folder, and no reason not to go on with the next.
bool is_of_folder(ErrorKind kind) {
    return kind == ErrorKind::kInvalid || kind == ErrorKind::kCorrupt ||
           kind == ErrorKind::kNotFound || kind == ErrorKind::kUnsupported ||
           kind == ErrorKind::kConflict;
}

class Watching {
  public:
    Watching(const PublishArguments& arguments, StepPattern where, Publisher& publisher,
             Replica& baseline, MetricsEndpoint* metrics)
        : arguments_(arguments),
          root_(where.root()),
          watch_(std::move(where), {arguments.ready, arguments.quiet}),
          publisher_(publisher),
          baseline_(baseline),
          metrics_(metrics) {}

    Result<void> run() {
        int failures = 0;
        for (;;) {
            const auto more = look_once();
            if (interrupted()) return {};
            if (!more && more.error().kind != ErrorKind::kUnavailable) {
                return std::unexpected(more.error());
            }
            if (!more && arguments_.once) return std::unexpected(more.error());
            if (!more) tell_fault(more.error(), "trying again");
            failures = more ? 0 : std::min(failures + 1, kDoublings);
            if (more && *more == Next::kEnd) return {};
            if (more && *more == Next::kLookAgain) continue;
            system_clock()->sleep_for(
                std::min(arguments_.poll * (std::int64_t{1} << failures), kLongestWait));
        }
    }

    std::uint64_t published() const { return published_; }
    std::uint64_t failed() const { return failed_; }
    const std::optional<Error>& first_failure() const { return first_failure_; }

  private:
    enum class Next { kWait, kLookAgain, kEnd };

    std::optional<std::uint64_t> newest() const {
        const ReplicaRecord& at = publisher_.at();
        return at.state_seq == 0 ? std::nullopt : std::optional(at.step);
    }

    bool reached() const {
        return arguments_.until_step && newest() && *newest() >= *arguments_.until_step;
    }

    Result<Next> look_once() {
        if (reached()) return Next::kEnd;
        auto look = watch_.look(newest());
        if (!look && look.error().kind == ErrorKind::kNotFound && !arguments_.once) {
            tell_waiting(fmt::format("{} is not there yet", printable(root_.string())));
            return Next::kWait;
        }
        if (!look) return std::unexpected(std::move(look).error());
        for (const StepFolder& left : look->passed_over) tell_passed_over(left);
        for (const StepFolder& folder : look->ready) {
            if (interrupted() || reached()) return Next::kEnd;
            const auto done = publish(folder);
            if (done) continue;
            if (interrupted()) return Next::kEnd;
            if (!is_of_folder(done.error().kind)) return std::unexpected(done.error());
            give_up(folder, done.error());
        }
        if (!look->ready.empty()) return Next::kLookAgain;
        if (look->unfinished) {
            tell_waiting(
                fmt::format("{} is being written", printable(look->unfinished->folder.string())));
        } else if (arguments_.once) {
            return Next::kEnd;
        } else {
            tell_waiting(fmt::format("waiting for the next step in {}", printable(root_.string())));
        }
        return Next::kWait;
    }

    Result<void> publish(const StepFolder& folder) {
        const Stopwatch watch;
        auto checkpoint = Checkpoint::open(folder.folder);
        if (!checkpoint) return std::unexpected(std::move(checkpoint).error());
        Published published;
        for (const CheckpointFile& file : checkpoint->files()) {
            published.checkpoint_bytes += file.size_bytes;
        }
        const PublishIntent intent{folder.step, arguments_.allow_schema_change, false};
        if (auto meant = check_intent(intent, *checkpoint, publisher_, baseline_); !meant) {
            return meant;
        }
        auto report = publisher_.publish(*checkpoint, folder.step);
        if (metrics_ != nullptr && !report) metrics_->on_publish_failure(report.error().kind);
        if (!report) return std::unexpected(std::move(report).error());
        if (metrics_ != nullptr) metrics_->on_published(*report);
        published.report = std::move(*report);
        clear_line();
        print_published(arguments_, published, watch.seconds());
        std::fflush(stdout);
        ++published_;
        return {};
    }

    void give_up(const StepFolder& folder, const Error& error) {
        ++failed_;
        if (!first_failure_) first_failure_ = error;
        watch_.give_up(folder);
        tell_fault(error, fmt::format("step {} is not published", folder.step));
    }

    void tell_passed_over(const StepFolder& folder) {
        clear_line();
        tell(Level::kWarning, "publish",
             fmt::format(
                 "{} was never completed{}, and a later step is; going on with that",
                 printable(folder.folder.string()),
                 arguments_.ready.empty() ? "" : " (no " + printable(arguments_.ready) + ")"));
    }

    void tell_fault(const Error& error, const std::string& what) {
        clear_line();
        if (arguments_.common.json) {
            print_json({{"verb", "publish"},
                        {"ok", false},
                        {"event", "fault"},
                        {"error", name_of(error.kind)},
                        {"message", error.text}});
            std::fflush(stdout);
        }
        tell_error(Level::kWarning, "publish", error.kind, fmt::format("{}; {}", error.text, what));
    }

    /// On a terminal, in place; elsewhere only what is worth a line of a log.
    void tell_waiting(const std::string& what) {
        if (arguments_.common.quiet) return;
        // Each time: whatever was told meanwhile has taken the line away.
        if (draws_live_line(arguments_.common)) draw_text(what);
        if (std::exchange(waiting_for_, what) == what) return;
        if (!draws_live_line(arguments_.common) && !fs::exists(root_)) {
            tell(Level::kInfo, "publish", what);
        }
    }

    void clear_line() {
        waiting_for_.clear();
        clear_live_line();
    }

    const PublishArguments& arguments_;
    fs::path root_;
    FolderWatch watch_;
    Publisher& publisher_;
    Replica& baseline_;
    MetricsEndpoint* metrics_;
    std::uint64_t published_ = 0;
    std::uint64_t failed_ = 0;
    std::optional<Error> first_failure_;
    std::string waiting_for_;
};

struct Watched {
    std::uint64_t published = 0;
    std::uint64_t failed = 0;
    std::optional<std::uint64_t> step;
    std::optional<Error> first_failure;
};

void print_end(const PublishArguments& arguments, const Watched& watched, double seconds) {
    clear_progress();
    if (arguments.common.json) {
        nlohmann::ordered_json json = {{"verb", "publish"},
                                       {"ok", true},
                                       {"url", arguments.run},
                                       {"watched", arguments.watch},
                                       {"published", watched.published},
                                       {"failed", watched.failed},
                                       {"step", nullptr},
                                       {"stopped", interrupted()},
                                       {"seconds", seconds}};
        if (watched.step) json["step"] = *watched.step;
        print_json(json);
    } else if (!arguments.common.quiet && watched.published + watched.failed == 0) {
        fmt::print("nothing new in {}\n", printable(arguments.watch));
    }
}

}  // namespace

int publish_folders(const PublishArguments& arguments) {
    const Stopwatch watch;
    auto where = StepPattern::is_one(arguments.watch)
                     ? StepPattern::parse(arguments.watch)
                     : Result<StepPattern>(StepPattern::any_in(arguments.watch));
    if (!where) return report_error(arguments.common, "publish", where.error());
    const auto metrics =
        serve_metrics(arguments.common, "publish", arguments.metrics, {{"run", arguments.run}});
    if (!metrics) return report_error(arguments.common, "publish", metrics.error());
    const auto act = [&](Publisher& publisher, Replica& baseline) -> Result<Watched> {
        Watching watching(arguments, *where, publisher, baseline, metrics->get());
        if (auto ran = watching.run(); !ran) return std::unexpected(std::move(ran).error());
        Watched watched{watching.published(), watching.failed(), {}, watching.first_failure()};
        if (publisher.at().state_seq != 0) watched.step = publisher.at().step;
        return watched;
    };
    const auto watched = with_publisher(arguments, act);
    if (!watched) return report_error(arguments.common, "publish", watched.error());
    print_end(arguments, *watched, watch.seconds());
    if (interrupted()) return 130;
    const bool failed = arguments.once && watched->first_failure;
    return failed ? exit_code(watched->first_failure->kind) : 0;
}

}  // namespace wisp::cli
