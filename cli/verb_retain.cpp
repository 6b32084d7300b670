#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "duration.hpp"
#include "run_options.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct RetainArguments {
    Common common;
    std::string run;
    MaintenanceArguments maintenance;
    RetainOptions retain;
};

void print_retained(const RetainArguments& arguments, const RetainReport& report) {
    clear_progress();
    const bool dry = arguments.retain.dry_run;
    if (arguments.common.json) {
        print_json({{"verb", "retain"},
                    {"ok", true},
                    {"url", arguments.run},
                    {"dry_run", dry},
                    {"floor_seq", report.floor_seq},
                    {"floor_step", report.floor_step},
                    {"floor_moved", report.floor_moved},
                    {"waiting_objects", report.waiting_objects},
                    {"waiting_bytes", report.waiting_bytes},
                    {"removed_objects", report.removed_objects},
                    {"removed_bytes", report.removed_bytes},
                    {"buried_commits", report.buried_commits},
                    {"held_by_branches", report.held_by_branches},
                    {"removed_keys", report.removed_keys}});
        return;
    }
    if (arguments.common.quiet) return;
    if (dry) {
        for (const std::string& key : report.removed_keys) fmt::print("{}\n", printable(key));
    }
    fmt::print("floor at step {}, seq {}{}; {} {} in {}", report.floor_step, report.floor_seq,
               report.floor_moved ? "" : " as before", dry ? "would remove" : "removed",
               human_bytes(report.removed_bytes), counted(report.removed_objects, "object"));
    if (report.waiting_objects > 0) {
        fmt::print("; {} in {} wait out the grace", human_bytes(report.waiting_bytes),
                   counted(report.waiting_objects, "object"));
    }
    if (!report.held_by_branches.empty()) {
        fmt::print("; branches hold others: {}", report.held_by_branches.size());
    }
    fmt::print("\n");
}

int run(const RetainArguments& arguments) {
    const auto access = open_run(arguments.run, arguments.maintenance.trust, arguments.common);
    if (!access) return report_error(arguments.common, "retain", access.error());
    const auto maintenance = maintenance_options(arguments.maintenance, *access, arguments.common);
    if (!maintenance) return report_error(arguments.common, "retain", maintenance.error());
    RetainOptions options = arguments.retain;
    options.maintenance = *maintenance;
    const auto report = retain_run(access->where, options);
    if (!report) return report_error(arguments.common, "retain", report.error());
    print_retained(arguments, *report);
    return 0;
}

}  // namespace

void add_retain(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("retain", "Remove what is older than the anchors to keep");
    auto arguments = std::make_shared<RetainArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    verb->add_option("--keep-anchors", arguments->retain.keep_anchors,
                     "Keep this many of the newest anchors and everything after them")
        ->check(in_range(std::uint64_t{1}, std::uint64_t{1'000'000}))
        ->capture_default_str();
    add_duration(*verb, "--grace", arguments->retain.grace,
                 "How long replicas may still read what is given up")
        ->default_str("1h");
    add_duration(*verb, "--orphan-age", arguments->retain.orphan_age,
                 "Remove objects that no commit names at this age")
        ->default_str("24h");
    verb->add_option("--release-branch", arguments->retain.release_branches,
                     "A branch that was given up, by its run's identity: what it needed may go")
        ->type_name("ID")
        ->allow_extra_args(false);
    verb->add_flag("--dry-run", arguments->retain.dry_run, "Say what would go, and change nothing");
    add_signing(*verb, arguments->maintenance.sign);
    add_trust(*verb, arguments->maintenance.trust);
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp retain s3://weights/qwen-rl --keep-anchors 2 --dry-run
  wisp retain s3://weights/qwen-rl --keep-anchors 2 --grace 6h)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
