#include <memory>

#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct MergeArguments {
    Common common;
    std::vector<std::string> deltas;
    std::string base;
    std::string output;
    std::string codec = "compact";
};

int run(const MergeArguments& arguments) {
    const Stopwatch watch;
    auto base = Checkpoint::open(arguments.base);
    if (!base) return report_error(arguments.common, "merge", base.error());
    DiffOptions options;
    options.codec = *parse_codec(arguments.codec);
    options.threads = arguments.common.threads;
    options.progress = progress_bar(arguments.common);
    const auto report =
        merge(*base, {arguments.deltas.begin(), arguments.deltas.end()}, arguments.output, options);
    if (!report) return report_error(arguments.common, "merge", report.error());
    print_diff_report(arguments.common, "merge", arguments.output, arguments.codec, *report,
                      watch.seconds());
    return 0;
}

}  // namespace

void add_merge(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("merge", "Make one delta of several consecutive ones");
    auto arguments = std::make_shared<MergeArguments>();
    verb->add_option("deltas", arguments->deltas, "Consecutive deltas, oldest first")->required();
    verb->add_option("--base", arguments->base, "Checkpoint the first delta was made from")
        ->required();
    verb->add_option("-o,--output", arguments->output, "Delta file to write")
        ->required()
        ->check(output_file());
    verb->add_option("--codec", arguments->codec, "Codec of the merged delta")
        ->check(one_of({"compact", "swift", "plain", "gap"}))
        ->capture_default_str();
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp merge d15.safetensors d16.safetensors --base step_14.safetensors -o d14_16.safetensors

The merged delta is smaller than its parts together. The base is needed because a compact delta is
relative to the values it replaces.)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
