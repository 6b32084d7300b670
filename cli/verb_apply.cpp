#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct ApplyArguments {
    Common common;
    std::string base;
    std::vector<std::string> deltas;
    std::string output;
    bool in_place = false;
    bool quick = false;
};

const char* recovery_name(Recovery recovery) {
    switch (recovery) {
        case Recovery::kNone: return "none";
        case Recovery::kFinished: return "finished";
        case Recovery::kUndone: return "undone";
    }
    return "none";
}

void announce(const Common& common, Recovery recovery) {
    if (common.quiet || recovery == Recovery::kNone) return;
    clear_progress();
    fmt::print(stderr, "{}\n",
               recovery == Recovery::kFinished
                   ? "an earlier apply was interrupted while writing: it was finished first"
                   : "an earlier apply was interrupted before writing: nothing of it was kept");
}

int run(const ApplyArguments& arguments) {
    const Stopwatch watch;
    ApplyOptions options;
    options.threads = arguments.common.threads;
    options.touched_only = arguments.quick;
    options.progress = progress_bar(arguments.common);
    const std::vector<std::filesystem::path> deltas(arguments.deltas.begin(),
                                                    arguments.deltas.end());
    // First of all, so that it is said even if the rest fails.
    Recovery recovery = Recovery::kNone;
    if (arguments.in_place) {
        const auto recovered = recover(arguments.base);
        if (!recovered) return report_error(arguments.common, "apply", recovered.error());
        recovery = *recovered;
        announce(arguments.common, recovery);
    }
    const auto report = arguments.in_place
                            ? apply_in_place(arguments.base, deltas, options)
                            : apply(arguments.base, deltas, arguments.output, options);
    if (!report) return report_error(arguments.common, "apply", report.error());
    clear_progress();
    const std::string& output = arguments.in_place ? arguments.base : arguments.output;
    if (arguments.common.json) {
        print_json({{"verb", "apply"},
                    {"ok", true},
                    {"output", output},
                    {"in_place", arguments.in_place},
                    {"deltas_applied", report->deltas_applied},
                    {"deltas_skipped", report->deltas_skipped},
                    {"changed_elements", report->changed_elements},
                    {"base_proven", report->base_proven},
                    {"result_proven", report->result_proven},
                    {"result_digest", to_text(report->result)},
                    {"recovery", recovery_name(recovery)},
                    {"seconds", watch.seconds()}});
        return 0;
    }
    if (arguments.common.quiet) return 0;
    if (report->deltas_skipped > 0) {
        fmt::print("{} of the deltas {} in the base already\n", report->deltas_skipped,
                   report->deltas_skipped == 1 ? "was" : "were");
    }
    fmt::print("{}: {} changed by {}, {}\n", printable(output),
               counted(report->changed_elements, "element"),
               counted(report->deltas_applied, "delta"), human_seconds(watch.seconds()));
    if (report->result_proven) {
        fmt::print("proven: state {}\n", to_text(report->result));
    } else if (report->deltas_applied > 0) {
        fmt::print(
            "not proven: the last delta carries no digests (not written by wisp); state is now "
            "{}\n",
            to_text(report->result));
    }
    return 0;
}

}  // namespace

void add_apply(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("apply", "Rebuild a checkpoint from a base and its deltas");
    auto arguments = std::make_shared<ApplyArguments>();
    verb->add_option("base", arguments->base, "Checkpoint the first delta was made from")
        ->required();
    verb->add_option("deltas", arguments->deltas, "Consecutive deltas, oldest first")->required();
    auto* target = verb->add_option_group("target");
    target->add_option("-o,--output", arguments->output, "Checkpoint to write")
        ->check(output_file());
    target->add_flag("--in-place", arguments->in_place,
                     "Overwrite the base, through a journal: crash-safe, all or nothing");
    target->require_option(1);
    verb->add_flag("--quick", arguments->quick,
                   "Prove only the touched positions, not the whole base and result");
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp apply base.safetensors delta.safetensors -o new.safetensors
  wisp apply model/ d1.safetensors d2.safetensors d3.safetensors --in-place

Nothing is overwritten, and no output gets its name, until base and result are proven. The header
of the output, its metadata included, is the base's. An interrupted --in-place is
finished or undone by the next one. Deltas the base already contains are skipped.)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
