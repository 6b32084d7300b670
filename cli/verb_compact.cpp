#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "duration.hpp"
#include "process_stop.hpp"
#include "run_options.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct CompactArguments {
    Common common;
    std::string run;
    MaintenanceArguments maintenance;
    bool watch = false;
    Milliseconds every{60'000};
};

void print_compacted(const CompactArguments& arguments, const CompactReport& report,
                     double seconds) {
    clear_progress();
    if (arguments.common.json) {
        print_json({{"verb", "compact"},
                    {"ok", true},
                    {"url", arguments.run},
                    {"merged", report.merged},
                    {"merged_bytes", report.merged_bytes},
                    {"spans_states", report.spans_states},
                    {"join_bytes_before", report.join_bytes_before},
                    {"join_bytes_after", report.join_bytes_after},
                    {"join_objects_before", report.join_objects_before},
                    {"join_objects_after", report.join_objects_after},
                    {"seconds", seconds}});
    } else if (!arguments.common.quiet && report.merged == 0) {
        fmt::print("nothing to merge; a late joiner reads {} in {}\n",
                   human_bytes(report.join_bytes_after),
                   counted(report.join_objects_after, "object"));
    } else if (!arguments.common.quiet) {
        fmt::print("{}, {}, for {}, {}\n", counted(report.merged, "merged delta"),
                   human_bytes(report.merged_bytes), counted(report.spans_states, "step"),
                   human_seconds(seconds));
        fmt::print("a late joiner reads {} in {}, before {} in {}\n",
                   human_bytes(report.join_bytes_after),
                   counted(report.join_objects_after, "object"),
                   human_bytes(report.join_bytes_before), human_count(report.join_objects_before));
    }
    std::fflush(stdout);
}

int run(const CompactArguments& arguments) {
    const auto access = open_run(arguments.run, arguments.maintenance.trust, arguments.common);
    if (!access) return report_error(arguments.common, "compact", access.error());
    const auto options = maintenance_options(arguments.maintenance, *access, arguments.common);
    if (!options) return report_error(arguments.common, "compact", options.error());
    for (;;) {
        const Stopwatch watch;
        const auto report = compact_run(access->where, *options);
        if (!report) {
            const int code = report_error(arguments.common, "compact", report.error());
            // A store that is away comes back; the next round finds out.
            const bool heals = report.error().kind == ErrorKind::kUnavailable ||
                               report.error().kind == ErrorKind::kConflict;
            if (!arguments.watch || !heals || interrupted()) return code;
        } else if (!arguments.watch || report->merged > 0) {
            print_compacted(arguments, *report, watch.seconds());
        }
        if (!arguments.watch) return 0;
        system_clock()->sleep_for(arguments.every);
        if (interrupted()) return 130;
    }
}

}  // namespace

void add_compact(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("compact", "Merge deltas, so that late joiners read less");
    auto arguments = std::make_shared<CompactArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    auto* watch = verb->add_flag("--watch", arguments->watch, "Go on as new steps come");
    add_duration(*verb, "--every", arguments->every, "How often to look, with --watch",
                 Milliseconds(1))
        ->default_str("1m")
        ->needs(watch);
    add_workshop(*verb, arguments->maintenance);
    add_signing(*verb, arguments->maintenance.sign);
    add_trust(*verb, arguments->maintenance.trust);
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp compact s3://weights/qwen-rl
  wisp compact /shared/runs/a --watch --every 5m --work /scratch)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
