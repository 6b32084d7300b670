#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "diagnostics.hpp"
#include "drive_servers.hpp"
#include "duration.hpp"
#include "event_log.hpp"
#include "follow_report.hpp"
#include "metrics.hpp"
#include "process_stop.hpp"
#include "run_options.hpp"
#include "step_command.hpp"
#include "systemd_notice.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

struct FollowArguments {
    Common common;
    std::string verb;
    std::string run;
    std::string layout = "wisp";
    std::string into;
    std::optional<StepPattern> steps;  // of --into, when it names a folder for each step
    std::optional<std::uint64_t> keep;
    std::string mark;
    Milliseconds reader_wait{60'000};
    std::string base;
    bool once = false;
    std::optional<std::uint64_t> until_step;
    Milliseconds poll{1000};
    std::string on_step;
    std::string id;
    bool no_heartbeat = false;
    bool accept_rewind = false;
    Milliseconds max_staleness{0};
    std::string metrics;
    std::string log;
    TrustArguments trust;
    DriveArguments servers;
};

constexpr std::size_t kLongestId = 100;
// Signatures and heartbeats belong to runs.
const std::vector<std::string> kRunOnlyFollowOptions = {"--trust", "--min-serial", "--run", "--id"};

bool is_id_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

std::string check_id(const std::string& id) {
    const bool fits = !id.empty() && id.size() <= kLongestId && id.front() != '.' &&
                      std::ranges::all_of(id, is_id_letter);
    return fits ? ""
                : "give 1 to 100 letters, digits, '.', '_' and '-', and begin with none of '.'";
}

/// The machine and the folder, so that a restart is the same replica and two folders are two.
std::string default_id(const fs::path& folder) {
    char host[256] = "unknown";
    (void)::gethostname(host, sizeof(host) - 1);
    std::error_code error;
    const std::string path = fs::weakly_canonical(folder, error).string();
    std::uint32_t hash = 2'166'136'261;  // FNV-1a: only to tell folders of one name apart
    for (const char c : path) {
        hash = (hash ^ static_cast<unsigned char>(c)) * std::uint32_t{16'777'619};
    }
    std::string id = fmt::format("{}-{}", host, fs::path(path).filename().string());
    id.resize(std::min(id.size(), kLongestId - 9));
    for (char& c : id) c = is_id_letter(c) ? c : '_';
    if (id.front() == '.') id.front() = '_';
    return fmt::format("{}-{:08x}", id, hash);
}

/// Everyone who is told of an event.
class Audience {
  public:
    static Result<Audience> gather(const FollowArguments& arguments, const fs::path& place,
                                   FollowReporter& reporter) {
        Audience audience(arguments, place, reporter);
        audience.id_ = arguments.id.empty() ? default_id(place) : arguments.id;
        auto metrics = serve_metrics(arguments.common, arguments.verb, arguments.metrics,
                                     {{"run", arguments.run}, {"replica", audience.id_}});
        if (!metrics) return std::unexpected(std::move(metrics).error());
        audience.metrics_ = std::move(*metrics);
        if (arguments.log.empty()) return audience;
        auto log = EventLog::open(arguments.log);
        if (!log) return std::unexpected(std::move(log).error());
        audience.log_.emplace(std::move(*log));
        return audience;
    }

    const std::string& id() const { return id_; }
    /// The one after the last move.
    bool command_failed() const { return command_failed_; }

    void tell(const FollowEvent& event) {
        if (metrics_) metrics_->on_event(event);
        const bool news = reporter_->tell(event);
        if (news && log_) write_log(event);
        const bool moved =
            event.kind == FollowEvent::Kind::kApplied || event.kind == FollowEvent::Kind::kJoined;
        if (news) tell_systemd(event);
        if (!moved || arguments_->on_step.empty()) return;
        const fs::path folder =
            arguments_->steps ? place_ / arguments_->steps->name_of(event.step) : place_;
        const auto done =
            run_step_command(arguments_->on_step, event, folder, arguments_->common.json);
        command_failed_ = !done;
        if (!done) reporter_->tell_failed_command(done.error());
    }

    /// Of a follower that cannot even begin. A service manager starts it again; what waits for it
    /// at the start of the machine goes on meanwhile.
    void tell_unreachable(const Error& error) {
        if (error.kind == ErrorKind::kUnavailable) service_.tell(error.text);
    }

  private:
    Audience(const FollowArguments& arguments, fs::path place, FollowReporter& reporter)
        : arguments_(&arguments), place_(std::move(place)), reporter_(&reporter) {}

    /// Ready is a replica that holds a step, has found that there is none yet, or cannot find out:
    /// that can take hours, for which no machine should wait with its start.
    void tell_systemd(const FollowEvent& event) {
        const bool holds = event.state != StateDigest{};
        const std::string at = holds ? fmt::format("step {}, seq {}", event.step, event.seq)
                                     : std::string("waiting for the first step");
        service_.tell(event.kind == FollowEvent::Kind::kFault ? at + "; " + event.fault : at);
    }

    void write_log(const FollowEvent& event) {
        nlohmann::ordered_json line = {{"run", arguments_->run}, {"replica", id_}};
        line.update(event_json(event));
        const auto written = log_->write(line);
        if (written) return;
        // The replica matters more than its log.
        cli::tell(Level::kWarning, arguments_->verb,
                  written.error().text + "; going on without it");
        log_.reset();
    }

    const FollowArguments* arguments_;
    fs::path place_;
    FollowReporter* reporter_;
    std::string id_;
    std::unique_ptr<MetricsEndpoint> metrics_;
    std::optional<EventLog> log_;
    bool command_failed_ = false;
    ServiceNotice service_;
};

/// Where the weights lie: the folder itself, or the one that those of the steps lie in.
fs::path home_of(const FollowArguments& arguments) {
    std::error_code ignored;
    const fs::path home = arguments.steps ? arguments.steps->root() : fs::path(arguments.into);
    return fs::absolute(home, ignored).lexically_normal();
}

Result<std::unique_ptr<Replica>> open_replica(const FollowArguments& arguments) {
    if (!arguments.steps) {
        FolderReplicaOptions options;
        options.threads = arguments.common.threads;
        options.progress = progress_bar(arguments.common);
        options.reader_timeout = arguments.reader_wait;
        return open_folder_replica(arguments.into, options);
    }
    SnapshotReplicaOptions options;
    options.threads = arguments.common.threads;
    options.progress = progress_bar(arguments.common);
    options.reader_timeout = arguments.reader_wait;
    options.keep = static_cast<std::size_t>(arguments.keep.value_or(options.keep));
    options.marker = arguments.mark;
    options.on_kept = [verb = arguments.verb](const std::string& what) {
        tell(Level::kInfo, verb, what);
    };
    return open_snapshot_replica(*arguments.steps, options);
}

struct Followed {
    FollowReport report;
    bool command_failed = false;
};

Result<Followed> follow(const FollowArguments& arguments, FollowReporter& reporter) {
    auto access = open_run(arguments.run, arguments.trust, arguments.common);
    if (!access) return std::unexpected(std::move(access).error());
    const fs::path place = home_of(arguments);
    if (const auto apart = require_apart(access->where, place); !apart) {
        return std::unexpected(apart.error());
    }
    // Before a folder is made for a run that is not there.
    const bool trl = arguments.layout == "trl";
    if (auto found = trl ? Result<std::vector<CommitSummary>>{}
                         : read_log(access->where, 1, access->options);
        !found && found.error().kind == ErrorKind::kNoRun) {
        return std::unexpected(std::move(found).error());
    }
    auto audience = Audience::gather(arguments, place, reporter);
    if (!audience) return std::unexpected(std::move(audience).error());
    auto replica = open_replica(arguments);
    if (!replica) return std::unexpected(std::move(replica).error());
    FollowOptions options;
    options.run = access->options;
    options.threads = arguments.common.threads;
    options.base = optional_path(arguments.base);
    if (!arguments.no_heartbeat) options.replica_id = audience->id();
    options.poll = arguments.poll;
    options.accept_rewind = arguments.accept_rewind;
    options.max_staleness = arguments.max_staleness;
    options.until_step = arguments.until_step;
    options.transfers = progress_bar(arguments.common);
    options.on_event = [&](const FollowEvent& event) -> Result<void> {
        audience->tell(event);
        return {};
    };
    auto follower = trl ? open_trl_follower(access->where, **replica, options)
                        : Follower::open(access->where, **replica, options);
    if (!follower) {
        audience->tell_unreachable(follower.error());
        return std::unexpected(std::move(follower).error());
    }
    auto report = arguments.once ? follower->catch_up() : follower->follow();
    if (trl && arguments.once && report && report->at.state_seq == 0) {
        return fail(ErrorKind::kNoRun,
                    fmt::format("there is nothing in TRL's layout at {}; check the address",
                                printable(arguments.run)));
    }
    if (!report) return std::unexpected(std::move(report).error());
    return Followed{std::move(*report), audience->command_failed()};
}

int drive(const FollowArguments& arguments) {
    DriveOrder order;
    order.common = arguments.common;
    order.run = arguments.run;
    order.trust = arguments.trust;
    order.once = arguments.once;
    order.until_step = arguments.until_step;
    order.poll = arguments.poll;
    order.metrics = arguments.metrics;
    order.log = arguments.log;
    return drive_servers(order, arguments.servers);
}

int run(const FollowArguments& arguments) {
    const Stopwatch watch;
    FollowReporter reporter(arguments.common, arguments.verb);
    const auto followed = follow(arguments, reporter);
    clear_progress();
    if (!followed) return report_error(arguments.common, arguments.verb, followed.error());
    const FollowReport& report = followed->report;
    reporter.finish(report, interrupted(), watch.seconds());
    if (interrupted()) return 130;
    if (followed->command_failed) return exit_code(ErrorKind::kInvalid);
    if (!report.expired) return 0;
    tell_error(Level::kError, arguments.verb, ErrorKind::kUnavailable,
               fmt::format("step {} is the newest of {} that counts, but it is stale; see whether "
                           "the trainer still lives and its certificate has not ended",
                           report.at.step, printable(arguments.run)));
    return exit_code(ErrorKind::kUnavailable);
}

void add_options(Command& verb, FollowArguments& arguments) {
    verb.add_option("run", arguments.run, "Address of the run")->required();
    add_layout(verb, arguments.layout);
    verb.add_option("--into", arguments.into,
                    "Folder that becomes the newest checkpoint; with {step} in its name, a folder "
                    "for each step, and a link 'current' beside them")
        ->required(arguments.verb == "pull")
        ->type_name("FOLDER");
    verb.add_option("--keep", arguments.keep,
                    "With {step}: how many of the newest folders stay, 3 by default")
        ->type_name("N")
        ->check(in_range(std::uint64_t{2}, std::uint64_t{1'000'000}));
    verb.add_option("--mark", arguments.mark,
                    "With {step}: an empty file of this name says that a folder is complete")
        ->type_name("NAME");
    add_duration(verb, "--reader-wait", arguments.reader_wait,
                 "How long 'wisp read' may keep the next step waiting before that is a fault",
                 Milliseconds(1))
        ->default_str("1m");
    verb.add_option("--base", arguments.base,
                    "A checkpoint at hand to start from, instead of fetching an anchor")
        ->type_name("CHECKPOINT");
    verb.add_option("--until-step", arguments.until_step, "Go no further than this step")
        ->check(not_negative());
    verb.add_option("--on-step", arguments.on_step,
                    "Shell command after each move; sees WISP_STEP, WISP_SEQ, WISP_EPOCH, "
                    "WISP_DIR, WISP_DIGEST")
        ->type_name("CMD");
    auto* id = verb.add_option("--id", arguments.id,
                               "Name in 'wisp status'; made of the machine "
                               "and the folder by default")
                   ->type_name("NAME")
                   ->check(accepted_by(check_id));
    verb.add_flag("--no-heartbeat", arguments.no_heartbeat, "Write nothing to the bucket")
        ->excludes(id);
    verb.add_flag("--accept-rewind", arguments.accept_rewind,
                  "Go on although the bucket was set back behind this replica");
    add_duration(verb, "--max-staleness", arguments.max_staleness,
                 "Call the replica stale when the newest commit is older than this");
    add_metrics(verb, arguments.metrics);
    verb.add_option("--log", arguments.log, "Append a JSON line for every event")
        ->type_name("FILE");
    add_trust(verb, arguments.trust);
    add_common(verb, arguments.common, true);
}

void check_into(const Command& verb, FollowArguments& arguments) {
    if (StepPattern::is_one(arguments.into)) {
        auto steps = StepPattern::parse(arguments.into);
        if (!steps) refuse_usage("--into", steps.error().text);
        arguments.steps = std::move(*steps);
        return;
    }
    for (const char* const option : {"--keep", "--mark"}) {
        if (verb.count(option) == 0) continue;
        refuse_usage(option,
                     "it is about a folder for each step, which --into asks for with {step}, as "
                     "in --into 'models/step_{step}'");
    }
}

}  // namespace

void add_follow(Command& app, Outcome& outcome) {
    auto* verb =
        app.add_subcommand("follow", "Keep a folder, or servers, at the newest step of a run");
    auto arguments = std::make_shared<FollowArguments>();
    arguments->verb = "follow";
    add_options(*verb, *arguments);
    verb->add_flag("--once", arguments->once, "Go to the newest step there is, and end");
    add_duration(*verb, "--poll", arguments->poll, "How often to look for a new step",
                 Milliseconds(1))
        ->default_str("1s");
    add_servers(*verb, arguments->servers);
    verb->footer(R"(Examples:
  wisp follow s3://weights/qwen-rl --into /models/policy
  wisp follow s3://weights/qwen-rl --into '/models/step_{step}' --mark STABLE --keep 3
  wisp follow /shared/runs/a --into policy --on-step 'curl -s -X POST localhost:8000/reload'
  wisp follow s3://weights/trl-run --into policy --layout trl
  wisp follow s3://weights/qwen-rl --into policy --trust trainer.key.pub --max-staleness 10m
  wisp follow s3://weights/qwen-rl --vllm http://gpu1:8000 --vllm http://gpu2:8000)");
    verb->callback([verb, arguments, &outcome] {
        check_drive_usage(*verb, arguments->servers);
        check_into(*verb, *arguments);
        if (arguments->layout == "trl") refuse_for_trl(*verb, kRunOnlyFollowOptions);
        outcome.exit_code = arguments->servers.any() ? drive(*arguments) : run(*arguments);
    });
}

void add_pull(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("pull", "Bring a folder to the newest step of a run, once");
    auto arguments = std::make_shared<FollowArguments>();
    arguments->verb = "pull";
    arguments->once = true;
    add_options(*verb, *arguments);
    verb->footer(R"(Examples:
  wisp pull s3://weights/qwen-rl --into /models/policy
  wisp pull /shared/runs/a --into step_40 --until-step 40)");
    verb->callback([verb, arguments, &outcome] {
        check_into(*verb, *arguments);
        if (arguments->layout == "trl") refuse_for_trl(*verb, kRunOnlyFollowOptions);
        outcome.exit_code = run(*arguments);
    });
}

}  // namespace wisp::cli
