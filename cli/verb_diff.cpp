#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct DiffArguments {
    Common common;
    std::string old_path;
    std::string new_path;
    std::string output;
    std::string codec = "compact";
    unsigned slices = 0;
    std::optional<std::uint64_t> step;
};

int run(const DiffArguments& arguments) {
    const Stopwatch watch;
    auto old_state = Checkpoint::open(arguments.old_path);
    if (!old_state) return report_error(arguments.common, "diff", old_state.error());
    auto new_state = Checkpoint::open(arguments.new_path);
    if (!new_state) return report_error(arguments.common, "diff", new_state.error());
    DiffOptions options;
    options.codec = *parse_codec(arguments.codec);
    options.slices = arguments.slices;
    options.threads = arguments.common.threads;
    options.step = arguments.step;
    options.progress = progress_bar(arguments.common);
    const auto report = diff(*old_state, *new_state, arguments.output, options);
    if (!report) return report_error(arguments.common, "diff", report.error());
    print_diff_report(arguments.common, "diff", arguments.output, arguments.codec, *report,
                      watch.seconds());
    return 0;
}

}  // namespace

void add_common(Command& verb, Common& common, bool parallel) {
    verb.add_flag("--json", common.json, "Print the result as one line of JSON");
    verb.add_flag("-q,--quiet", common.quiet, "Print nothing but errors");
    if (parallel) {
        verb.add_option("--threads", common.threads, "Threads to use; one per core by default")
            ->check(in_range(1, 1024));
    }
}

void print_diff_report(const Common& common, const std::string& verb, const std::string& output,
                       const std::string& codec, const DiffReport& report, double seconds) {
    clear_progress(common);
    const double share = ratio(report.changed_elements, report.total_elements);
    const double bits = 8 * ratio(report.file_bytes, report.changed_elements);
    if (common.json) {
        print_json({{"verb", verb},
                    {"ok", true},
                    {"output", output},
                    {"codec", codec},
                    {"step", report.step},
                    {"total_elements", report.total_elements},
                    {"changed_elements", report.changed_elements},
                    {"changed_tensors", report.changed_tensors},
                    {"sparsity", 1 - share},
                    {"checkpoint_bytes", report.checkpoint_bytes},
                    {"payload_bytes", report.payload_bytes},
                    {"file_bytes", report.file_bytes},
                    {"bits_per_change", bits},
                    {"ratio", ratio(report.checkpoint_bytes, report.file_bytes)},
                    {"base_digest", to_text(report.base)},
                    {"result_digest", to_text(report.result)},
                    {"kernel", kernel_name()},
                    {"seconds", seconds}});
        return;
    }
    if (common.quiet) return;
    fmt::print("{} of {} elements changed ({:.3f} %) in {} tensors\n",
               human_count(report.changed_elements), human_count(report.total_elements),
               100 * share, report.changed_tensors);
    fmt::print("{}: {}, {:.0f}x smaller than {}", printable(output), human_bytes(report.file_bytes),
               ratio(report.checkpoint_bytes, report.file_bytes),
               human_bytes(report.checkpoint_bytes));
    if (report.changed_elements > 0) fmt::print(", {:.2f} bits per change", bits);
    fmt::print(", {}\n", human_seconds(seconds));
}

void add_diff(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("diff", "Write what changed from one checkpoint to another");
    auto arguments = std::make_shared<DiffArguments>();
    verb->add_option("old", arguments->old_path, "Checkpoint to start from")->required();
    verb->add_option("new", arguments->new_path, "Checkpoint to arrive at")->required();
    verb->add_option("-o,--output", arguments->output, "Delta file to write")->required();
    verb->add_option(
            "--codec", arguments->codec,
            "compact: smallest; swift: read without a walk over the model; plain and gap: as "
            "TRL writes them")
        ->check(one_of({"compact", "swift", "plain", "gap"}))
        ->capture_default_str();
    verb->add_option("--slices", arguments->slices,
                     "Of a swift delta: cut it into so many slices, to be fetched apart")
        ->check(in_range(0, 64))
        ->capture_default_str();
    verb->add_option("--step", arguments->step, "Step to write into the delta")
        ->check(not_negative());
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp diff old.safetensors new.safetensors -o delta.safetensors
  wisp diff base_model/ tuned_model/ -o tuned.wisp.safetensors --json
  wisp diff old.safetensors new.safetensors -o step_000042.safetensors --codec plain --step 42)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
