#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "diagnostics.hpp"
#include "layers.hpp"
#include "schema_difference.hpp"
#include "temporary_folder.hpp"
#include "terminal.hpp"
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

constexpr int kDiffers = 1;
constexpr int kTrouble = 2;

/// As diff(1) has it: 1 says that they differ, so what went wrong is never 1.
int tell_trouble(const Common& common, const Error& error) {
    const int code = report_error(common, "diff", error);
    return code == kDiffers ? kTrouble : code;
}

int tell_other_tensors(const Common& common, const std::string& differs) {
    if (common.json) {
        print_json({{"verb", "diff"}, {"ok", true}, {"same", false}, {"schema", differs}});
    } else if (!common.quiet) {
        fmt::print("the checkpoints hold other tensors: {}\n", differs);
    }
    return kDiffers;
}

void print_differences(const Common& common, const FileReport& delta, double seconds) {
    const bool same = delta.changed_elements == 0;
    if (common.json) {
        nlohmann::ordered_json line = {{"verb", "diff"},
                                       {"ok", true},
                                       {"same", same},
                                       {"total_elements", delta.total_elements},
                                       {"changed_elements", delta.changed_elements},
                                       {"seconds", seconds},
                                       {"tensors", nlohmann::json::array()}};
        for (const TensorReport& tensor : delta.tensors) {
            line["tensors"].push_back({{"name", tensor.tensor.name},
                                       {"element_count", tensor.element_count},
                                       {"changed_elements", tensor.changed_elements}});
        }
        print_json(line);
        return;
    }
    if (common.quiet) return;
    if (same) {
        fmt::print("no differences in {}\n", counted(delta.total_elements, "element"));
        return;
    }
    show_paged(common, [&] {
        fmt::print("{} of {} changed ({:.3f} %) in {}\n", human_count(delta.changed_elements),
                   counted(delta.total_elements, "element"),
                   100 * ratio(delta.changed_elements, delta.total_elements),
                   counted(delta.tensors.size(), "tensor"));
        print_layers(delta);
    });
}

/// Without a file to write: shows what changed.
int show(const DiffArguments& arguments) {
    const Stopwatch watch;
    auto old_state = Checkpoint::open(arguments.old_path);
    if (!old_state) return tell_trouble(arguments.common, old_state.error());
    auto new_state = Checkpoint::open(arguments.new_path);
    if (!new_state) return tell_trouble(arguments.common, new_state.error());
    const std::string differs = schema_difference(old_state->schema(), new_state->schema());
    if (!differs.empty()) return tell_other_tensors(arguments.common, differs);
    const auto folder = TemporaryFolder::make("wisp-diff");
    if (!folder) return tell_trouble(arguments.common, folder.error());
    const std::filesystem::path file = folder->path() / "delta.safetensors";
    DiffOptions options;
    options.codec = *parse_codec(arguments.codec);
    options.threads = arguments.common.threads;
    options.progress = progress_bar(arguments.common);
    const auto written = diff(*old_state, *new_state, file, options);
    if (!written) return tell_trouble(arguments.common, written.error());
    const auto delta = inspect(file);
    if (!delta) return tell_trouble(arguments.common, delta.error());
    clear_progress();
    print_differences(arguments.common, *delta, watch.seconds());
    return delta->changed_elements == 0 ? 0 : kDiffers;
}

int run(const DiffArguments& arguments) {
    if (arguments.output.empty()) return show(arguments);
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
    common.verb = verb.name();
    auto* quiet = verb.add_flag("-q,--quiet", common.quiet, "Print nothing but errors");
    verb.add_flag("-v,--verbose", common.verbose,
                  "Say on stderr what is asked of the store, and how long each part takes")
        ->excludes(quiet);
    add_log_format(verb);
    if (parallel) {
        verb.add_option("--threads", common.threads, "Threads to use; one per core by default")
            ->check(in_range(1, 1024));
    }
}

void print_diff_report(const Common& common, const std::string& verb, const std::string& output,
                       const std::string& codec, const DiffReport& report, double seconds) {
    clear_progress();
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
    fmt::print("{} of {} changed ({:.3f} %) in {}\n", human_count(report.changed_elements),
               counted(report.total_elements, "element"), 100 * share,
               counted(report.changed_tensors, "tensor"));
    fmt::print("{}: {}, {:.0f}x smaller than {}", printable(output), human_bytes(report.file_bytes),
               ratio(report.checkpoint_bytes, report.file_bytes),
               human_bytes(report.checkpoint_bytes));
    if (report.changed_elements > 0) fmt::print(", {:.2f} bits per change", bits);
    fmt::print(", {}\n", human_seconds(seconds));
}

void add_diff(Command& app, Outcome& outcome) {
    auto* verb =
        app.add_subcommand("diff", "Show or write what changed from one checkpoint to another");
    auto arguments = std::make_shared<DiffArguments>();
    verb->add_option("old", arguments->old_path, "Checkpoint to start from")->required();
    verb->add_option("new", arguments->new_path, "Checkpoint to arrive at")->required();
    verb->add_option("-o,--output", arguments->output,
                     "Delta file to write; without it, what changed is shown")
        ->check(output_file());
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
  wisp diff step_41.safetensors step_42.safetensors
  wisp diff old.safetensors new.safetensors -o delta.safetensors
  wisp diff base_model/ tuned_model/ -o tuned.wisp.safetensors --json
  wisp diff old.safetensors new.safetensors -o step_000042.safetensors --codec plain --step 42

Without -o the exit code is 1 if anything differs, as diff(1) has it.)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
