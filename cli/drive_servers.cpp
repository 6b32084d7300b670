#include "drive_servers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "drive_report.hpp"
#include "duration.hpp"
#include "event_log.hpp"
#include "metrics.hpp"
#include "process_stop.hpp"
#include "systemd_notice.hpp"

namespace wisp::cli {
namespace {

/// What only a folder of weights has a use for, and what only servers do.
const std::vector<std::string> kOnlyOfFolders = {
    "--base",       "--on-step", "--id",   "--no-heartbeat", "--accept-rewind", "--max-staleness",
    "--min-serial", "--layout",  "--keep", "--mark",         "--reader-wait"};
const std::vector<std::string> kOnlyOfServers = {"--requests", "--timeout", "--api-key"};

/// Errors that no waiting cures.
bool is_final(const EngineReport& report) {
    if (!report.error) return false;
    const ErrorKind kind = report.error->kind;
    return kind == ErrorKind::kInvalid || kind == ErrorKind::kUnsupported ||
           kind == ErrorKind::kDenied;
}

EnginePause pause_of(const std::string& requests) {
    if (requests == "wait") return EnginePause::kWait;
    return requests == "abort" ? EnginePause::kAbort : EnginePause::kKeep;
}

EngineOptions engine_options(const DriveOrder& order, const DriveArguments& servers,
                             const RunAccess& access) {
    EngineOptions options;
    for (const auto& url : servers.vllm) {
        options.servers.push_back({url, EngineKind::kVllm, servers.api_key});
    }
    for (const auto& url : servers.sglang) {
        options.servers.push_back({url, EngineKind::kSglang, servers.api_key});
    }
    options.run = order.run;
    for (const PublicKey& key : access.options.trust.keys) options.trust.push_back(key.to_text());
    options.min_serial = access.options.trust.min_serial;
    options.run_id = access.options.expected_run;
    options.pause = pause_of(servers.requests);
    options.update_timeout = servers.timeout;
    if (order.once) options.watch = Milliseconds(0);
    options.stop = process_stop();
    return options;
}

class Driving {
  public:
    Driving(const DriveOrder& order, RunWatch watch, EngineDriver driver, DriveReporter& reporter)
        : order_(order),
          watch_(std::move(watch)),
          driver_(std::move(driver)),
          reporter_(reporter) {}

    const std::optional<CommitSummary>& head() const { return head_; }
    std::vector<EngineReport> servers() const { return driver_.latest(); }

    /// Until the step is reached, a stop, or a failure that does not heal.
    Result<void> run() {
        for (;;) {
            auto newest = watch_.newest(order_.until_step);
            if (!newest && (order_.once || !heals(newest.error().kind))) {
                return std::unexpected(std::move(newest).error());
            }
            if (interrupted()) return {};
            if (!newest) {
                reporter_.tell_run_fault(newest.error());
            } else if (*newest && is_new(**newest)) {
                aim(**newest);
            } else if (!order_.once) {
                reporter_.tell_waiting(head_, age());
            }
            if (order_.once || reached()) return {};
            if (auto hopeless = all_hopeless()) return std::unexpected(std::move(*hopeless));
            system_clock()->sleep_for(order_.poll);
        }
    }

  private:
    /// Credentials are renewed, a run is put back; at the start either is a wrong address.
    bool heals(ErrorKind kind) const {
        return kind == ErrorKind::kUnavailable ||
               (head_ && (kind == ErrorKind::kNoRun || kind == ErrorKind::kDenied));
    }
    bool is_new(const CommitSummary& line) const {
        return !head_ || head_->step != line.step || head_->state != line.state;
    }
    std::int64_t age() const {
        return head_ ? std::max<std::int64_t>(0, system_clock()->now_ms() - head_->time_ms) : 0;
    }

    void aim(const CommitSummary& line) {
        head_ = line;
        reporter_.tell_head(line, age());
        const EngineTarget target{line.step, to_text(line.state)};
        if (order_.once) {
            (void)driver_.update(target);
        } else {
            driver_.aim(target);
        }
    }

    bool reached() const {
        if (!order_.until_step || !head_ || head_->step < *order_.until_step) return false;
        return std::ranges::all_of(driver_.latest(), [&](const EngineReport& report) {
            return report.ok() && report.target == head_->step;
        });
    }

    /// The first failure, when no server is left that could follow.
    std::optional<Error> all_hopeless() const {
        const auto servers = driver_.latest();
        if (!std::ranges::all_of(servers, is_final)) return std::nullopt;
        return servers.front().error;
    }

    const DriveOrder& order_;
    RunWatch watch_;
    EngineDriver driver_;
    DriveReporter& reporter_;
    std::optional<CommitSummary> head_;
};

Result<std::unique_ptr<DriveReporter>> make_reporter(const DriveOrder& order) {
    auto metrics = serve_metrics(order.common, "follow", order.metrics, {{"run", order.run}});
    if (!metrics) return std::unexpected(std::move(metrics).error());
    std::optional<EventLog> log;
    if (!order.log.empty()) {
        auto opened = EventLog::open(order.log);
        if (!opened) return std::unexpected(std::move(opened).error());
        log.emplace(std::move(*opened));
    }
    return std::make_unique<DriveReporter>(order.common, order.run, std::move(*metrics),
                                           std::move(log));
}

/// The exit code when all went as it should but for some servers.
int code_of(const std::vector<EngineReport>& servers) {
    for (const EngineReport& report : servers) {
        if (report.error) return exit_code(report.error->kind);
    }
    return 0;
}

Result<int> drive(const DriveOrder& order, const DriveArguments& servers) {
    const Stopwatch stopwatch;
    auto access = open_run(order.run, order.trust, order.common);
    if (!access) return std::unexpected(std::move(access).error());
    auto watch = RunWatch::open(access->where, access->options);
    if (!watch) {
        // A service manager starts it again; what waits for it meanwhile goes on.
        if (watch.error().kind == ErrorKind::kUnavailable) ServiceNotice().tell(watch.error().text);
        return std::unexpected(std::move(watch).error());
    }
    auto reporter = make_reporter(order);
    if (!reporter) return std::unexpected(std::move(reporter).error());
    EngineOptions options = engine_options(order, servers, *access);
    options.on_report = [&](const EngineReport& report) { (*reporter)->tell(report); };
    auto driver = EngineDriver::open(options);
    if (!driver) return std::unexpected(std::move(driver).error());
    Driving driving(order, std::move(*watch), std::move(*driver), **reporter);
    if (auto done = driving.run(); !done) return std::unexpected(std::move(done).error());
    const auto reports = driving.servers();
    (*reporter)->finish(driving.head(), reports, interrupted(), stopwatch.seconds());
    if (interrupted()) return 130;
    return order.once ? code_of(reports) : 0;
}

}  // namespace

void add_servers(Command& verb, DriveArguments& into) {
    verb.add_option("--vllm", into.vllm,
                    "Instead of --into: bring this vLLM server to each new step; repeatable")
        ->type_name("URL")
        ->allow_extra_args(false);
    verb.add_option("--sglang", into.sglang, "The same for an SGLang server; repeatable")
        ->type_name("URL")
        ->allow_extra_args(false);
    verb.add_option("--requests", into.requests,
                    "What becomes of a server's requests under way: keep (they wait), wait (they "
                    "end first), abort")
        ->check(one_of({"keep", "wait", "abort"}))
        ->capture_default_str();
    add_duration(verb, "--timeout", into.timeout, "For a server to stage and take a step",
                 Milliseconds(1))
        ->default_str("5m");
    verb.add_option("--api-key", into.api_key,
                    "Key of servers started with one; better in the environment")
        ->envname("WISP_API_KEY")
        ->type_name("KEY");
}

void check_drive_usage(const Command& verb, const DriveArguments& servers) {
    const bool folder = verb.count("--into") != 0;
    if (folder && servers.any()) {
        refuse_usage("--into",
                     "give a folder, or servers (--vllm, --sglang), not "
                     "both; two processes can follow one run");
    }
    if (!folder && !servers.any()) {
        demand_usage("--into FOLDER, or --vllm URL, or --sglang URL");
    }
    for (const std::string& option : servers.any() ? kOnlyOfFolders : kOnlyOfServers) {
        // A key in the environment is no wish.
        const bool named = verb.count(option) != 0 && option != "--api-key";
        if (!named) continue;
        refuse_usage(option, servers.any() ? "goes with --into, not with servers"
                                           : "goes with --vllm or --sglang");
    }
}

int drive_servers(const DriveOrder& order, const DriveArguments& servers) {
    const auto code = drive(order, servers);
    if (!code) return report_error(order.common, "follow", code.error());
    return *code;
}

}  // namespace wisp::cli
