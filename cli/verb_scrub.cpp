#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "diagnostics.hpp"
#include "run_options.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct ScrubArguments {
    Common common;
    std::string target;
    bool replay = false;
    MaintenanceArguments maintenance;
};

bool is_replica(const std::string& target) {
    std::error_code error;
    return std::filesystem::exists(std::filesystem::path(target) / ".wisp" / "replica.json", error);
}

Result<ScrubReport> scrub(const ScrubArguments& arguments, bool replica) {
    if (replica) {
        return scrub_folder(arguments.target, arguments.common.threads,
                            progress_bar(arguments.common));
    }
    auto access = open_run(arguments.target, arguments.maintenance.trust, arguments.common);
    if (!access) return std::unexpected(std::move(access).error());
    auto options = maintenance_options(arguments.maintenance, *access, arguments.common);
    if (!options) return std::unexpected(std::move(options).error());
    return scrub_run(access->where, *options, arguments.replay);
}

void print_scrubbed(const ScrubArguments& arguments, const ScrubReport& report, bool replica,
                    double seconds) {
    clear_progress();
    if (arguments.common.json) {
        nlohmann::ordered_json findings = nlohmann::ordered_json::array();
        for (const ScrubFinding& finding : report.findings) {
            findings.push_back(
                {{"what", finding.what}, {"problem", finding.problem}, {"cure", finding.cure}});
        }
        print_json({{"verb", "scrub"},
                    {"ok", report.findings.empty()},
                    {"target", arguments.target},
                    {"kind", replica ? "replica" : "run"},
                    {"commits", report.commits},
                    {"objects", report.objects},
                    {"bytes", report.bytes},
                    {"states_proven", report.states_proven},
                    {"findings", findings},
                    {"seconds", seconds}});
        return;
    }
    for (const ScrubFinding& finding : report.findings) {
        tell(Level::kError, "scrub",
             fmt::format("{}: {}; {}", printable(finding.what), printable(finding.problem),
                         printable(finding.cure)));
    }
    if (arguments.common.quiet) return;
    fmt::print(
        "{}: {}; {}, {}, {} read, {} proven, {}\n", printable(arguments.target),
        report.findings.empty() ? std::string("sound") : counted(report.findings.size(), "finding"),
        counted(report.commits, "commit"), counted(report.objects, "object"),
        human_bytes(report.bytes), counted(report.states_proven, "state"), human_seconds(seconds));
}

int run(const ScrubArguments& arguments) {
    const Stopwatch watch;
    const bool replica = is_replica(arguments.target);
    const auto report = scrub(arguments, replica);
    if (!report) return report_error(arguments.common, "scrub", report.error());
    print_scrubbed(arguments, *report, replica, watch.seconds());
    return report->findings.empty() ? 0 : exit_code(ErrorKind::kCorrupt);
}

}  // namespace

void add_scrub(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("scrub", "Read a run or a replica again, and prove it");
    auto arguments = std::make_shared<ScrubArguments>();
    verb->add_option("target", arguments->target, "Address of a run, or the folder of a replica")
        ->required();
    verb->add_flag("--replay", arguments->replay, "Also walk through every state of a run");
    add_workshop(*verb, arguments->maintenance);
    add_trust(*verb, arguments->maintenance.trust);
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp scrub s3://weights/qwen-rl
  wisp scrub s3://weights/qwen-rl --replay --work /scratch
  wisp scrub /models/policy)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
