#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "run_options.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct ExportArguments {
    Common common;
    std::string run;
    std::string output;
    std::optional<std::uint64_t> step;
    MaintenanceArguments maintenance;
};

Result<ExportReport> write_out(const ExportArguments& arguments) {
    auto access = open_run(arguments.run, arguments.maintenance.trust, arguments.common);
    if (!access) return std::unexpected(std::move(access).error());
    auto options = maintenance_options(arguments.maintenance, *access, arguments.common);
    if (!options) return std::unexpected(std::move(options).error());
    return export_step(access->where, arguments.step, arguments.output, *options);
}

int run(const ExportArguments& arguments) {
    const Stopwatch watch;
    const auto report = write_out(arguments);
    if (!report) return report_error(arguments.common, "export", report.error());
    clear_progress();
    if (arguments.common.json) {
        print_json({{"verb", "export"},
                    {"ok", true},
                    {"url", arguments.run},
                    {"output", arguments.output},
                    {"step", report->step},
                    {"seq", report->seq},
                    {"state", to_text(report->state)},
                    {"fetched_bytes", report->fetched_bytes},
                    {"fetched_objects", report->fetched_objects},
                    {"seconds", watch.seconds()}});
    } else if (!arguments.common.quiet) {
        fmt::print("{}: step {}, seq {}, state {}; {} in {}, {}\n", printable(arguments.output),
                   report->step, report->seq, to_text(report->state),
                   human_bytes(report->fetched_bytes), counted(report->fetched_objects, "object"),
                   human_seconds(watch.seconds()));
    }
    return 0;
}

}  // namespace

void add_export(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("export", "Write any retained step as a checkpoint folder");
    auto arguments = std::make_shared<ExportArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    verb->add_option("--step", arguments->step, "Step to write; the newest by default")
        ->check(not_negative());
    verb->add_option("-o,--output", arguments->output, "Folder to make")
        ->required()
        ->check(output_file());
    add_workshop(*verb, arguments->maintenance);
    add_trust(*verb, arguments->maintenance.trust);
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp export s3://weights/qwen-rl -o newest
  wisp export s3://weights/qwen-rl --step 200 -o step_200 --base models/qwen)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
