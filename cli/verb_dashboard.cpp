#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "dashboard_server.hpp"
#include "live_line.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct DashboardArguments {
    Common common;
    std::vector<std::string> runs;
    Listening at{"127.0.0.1", 8400};
    ViewOptions view;
    TrustArguments trust;
};

void announce(const DashboardArguments& arguments, std::size_t runs, int port) {
    const std::string& host = arguments.at.host;
    const std::string address = fmt::format(
        "http://{}:{}/", host.find(':') == std::string::npos ? host : "[" + host + "]", port);
    if (arguments.common.json) {
        print_json({{"verb", "dashboard"},
                    {"ok", true},
                    {"address", address},
                    {"port", port},
                    {"runs", runs}});
    } else if (!arguments.common.quiet) {
        const std::string what =
            runs == 1 ? printable(shown_address(arguments.runs.front())) : counted(runs, "run");
        fmt::print("{} shows {}; Ctrl-C ends it\n", address, what);
        if (!is_loopback(host)) {
            fmt::print("anybody who reaches this machine can read it: there is no password\n");
        }
    }
    // A process that started this waits for the line.
    std::fflush(stdout);
}

int run(const DashboardArguments& arguments) {
    ViewOptions options = arguments.view;
    options.threads = arguments.common.threads;
    // An address without a run is said here rather than on a page.
    // While it serves, what it asks for is nothing to look at.
    Common common = arguments.common;
    common.quiet = true;
    const auto runs = [&] {
        const LiveWait waiting(arguments.common, "the newest commits to be read");
        return WatchedRuns::open(arguments.runs, arguments.trust, options, common);
    }();
    clear_progress();
    if (!runs) return report_error(arguments.common, "dashboard", runs.error());
    const auto served = serve_dashboard(
        **runs, arguments.at, [&](int port) { announce(arguments, (*runs)->size(), port); });
    if (!served) return report_error(arguments.common, "dashboard", served.error());
    return 0;
}

}  // namespace

void add_dashboard(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("dashboard", "Show runs in the browser, live");
    auto arguments = std::make_shared<DashboardArguments>();
    verb->add_option("run", arguments->runs,
                     "Address of a run, several of them, or a prefix with runs under it")
        ->required();
    verb->add_option("--port", arguments->at.port, "Port to listen on; 0: any that is free")
        ->check(in_range(0, 65535))
        ->capture_default_str();
    verb->add_option(
            "--host", arguments->at.host,
            "Address to listen on; others than loopback are open to everyone who can reach them")
        ->capture_default_str();
    verb->add_option("--commits", arguments->view.commits, "Show the newest N commits")
        ->check(in_range(1, 100'000))
        ->type_name("N")
        ->capture_default_str();
    verb->add_option("--work", arguments->view.work,
                     "Keep a replica in this folder, to count which exponents changed")
        ->check(existing_folder())
        ->type_name("DIR");
    add_trust(*verb, arguments->trust);
    add_common(*verb, arguments->common, true);
    verb->footer(
        R"(Reads the bucket and writes nothing to it. The page asks for news every two seconds.

Examples:
  wisp dashboard s3://weights/qwen-rl
  wisp dashboard /shared/runs/a --port 0
  wisp dashboard s3://weights/runs    all runs under it, with an overview
  ssh -L 8400:127.0.0.1:8400 trainer    and 'wisp dashboard RUN' there)");
    verb->callback([arguments, &outcome] {
        if (arguments->runs.size() > 1 && !arguments->trust.run.empty()) {
            refuse_usage("--run", "several runs cannot all be this one; name a single address");
        }
        outcome.exit_code = run(*arguments);
    });
}

}  // namespace wisp::cli
