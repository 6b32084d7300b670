#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "layers.hpp"
#include "terminal.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct InspectArguments {
    Common common;
    std::string file;
    bool tensors = false;
};

void print_tensors(const FileReport& report) {
    fmt::print("\n");
    for (const TensorReport& tensor : report.tensors) {
        fmt::print(
            "{}  {} {}", printable(tensor.tensor.name), traits_of(tensor.tensor.dtype).name,
            tensor.tensor.shape.empty() && report.foreign ? "" : shape_text(tensor.tensor.shape));
        if (report.is_delta()) {
            fmt::print("  {} changed", human_count(tensor.changed_elements));
            if (tensor.element_count > 0) {
                fmt::print(" ({:.3f} %)",
                           100 * ratio(tensor.changed_elements, tensor.element_count));
            }
            fmt::print(", {:.2f} bits/change",
                       8 * ratio(tensor.stored_bytes, tensor.changed_elements));
            for (const auto& [kind, count] : tensor.block_kinds) {
                fmt::print(", {} {}", count, name_of(kind));
            }
        }
        fmt::print("  {}\n", human_bytes(tensor.stored_bytes));
    }
}

void print_report(const FileReport& report, const InspectArguments& arguments) {
    fmt::print("{}: ", printable(arguments.file));
    if (!report.is_delta()) {
        fmt::print("checkpoint, {}, {}, {}\nschema {}\n", counted(report.tensors.size(), "tensor"),
                   counted(report.total_elements, "element"), human_bytes(report.file_bytes),
                   report.schema_digest);
        if (arguments.tensors) print_tensors(report);
        return;
    }
    fmt::print("{} delta, step {}, {}\n", name_of(*report.codec), report.step.value_or(0),
               human_bytes(report.file_bytes));
    fmt::print("{} changed", counted(report.changed_elements, "element"));
    if (report.total_elements > 0) {
        fmt::print(" of {} ({:.3f} %)", human_count(report.total_elements),
                   100 * ratio(report.changed_elements, report.total_elements));
    }
    fmt::print(" in {}, {:.2f} bits per change ({:.2f} coded)\n",
               counted(report.tensors.size(), "tensor"),
               8 * ratio(report.file_bytes, report.changed_elements),
               8 * ratio(report.payload_bytes, report.changed_elements));
    if (report.foreign) {
        fmt::print("carries no digests or seal: not written by wisp\n");
    } else {
        fmt::print("base   {}\nresult {}\nschema {}\nseal   holds\n", to_text(*report.base),
                   to_text(*report.result), report.schema_digest);
    }
    if (!report.tensors.empty()) print_layers(report);
    if (arguments.tensors) print_tensors(report);
}

void print_as_json(const FileReport& report, const InspectArguments& arguments) {
    nlohmann::ordered_json line = {{"verb", "inspect"},
                                   {"ok", true},
                                   {"file", arguments.file},
                                   {"kind", report.is_delta() ? "delta" : "checkpoint"},
                                   {"file_bytes", report.file_bytes},
                                   {"payload_bytes", report.payload_bytes},
                                   {"total_elements", report.total_elements},
                                   {"tensor_count", report.tensors.size()},
                                   {"metadata", report.metadata}};
    if (!report.schema_digest.empty()) line["schema_digest"] = report.schema_digest;
    if (report.is_delta()) {
        line["codec"] = name_of(*report.codec);
        line["sealed"] = !report.foreign;
        line["step"] = report.step.value_or(0);
        line["changed_elements"] = report.changed_elements;
        line["bits_per_change"] = 8 * ratio(report.file_bytes, report.changed_elements);
        if (report.base) line["base_digest"] = to_text(*report.base);
        if (report.result) line["result_digest"] = to_text(*report.result);
    }
    if (arguments.tensors) {
        for (const TensorReport& tensor : report.tensors) {
            line["tensors"].push_back({{"name", tensor.tensor.name},
                                       {"dtype", traits_of(tensor.tensor.dtype).name},
                                       {"shape", tensor.tensor.shape},
                                       {"element_count", tensor.element_count},
                                       {"changed_elements", tensor.changed_elements},
                                       {"stored_bytes", tensor.stored_bytes},
                                       {"blocks", blocks_json(tensor)}});
        }
    }
    print_json(line);
}

int run(const InspectArguments& arguments) {
    const auto report = inspect(arguments.file, progress_bar(arguments.common));
    if (!report) return report_error(arguments.common, "inspect", report.error());
    clear_progress();
    if (arguments.common.json) {
        print_as_json(*report, arguments);
    } else if (!arguments.common.quiet) {
        show_paged(arguments.common, [&] { print_report(*report, arguments); });
    }
    return 0;
}

}  // namespace

void add_inspect(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("inspect", "Show what a file is, and what changed where");
    auto arguments = std::make_shared<InspectArguments>();
    verb->add_option("file", arguments->file, "Delta or checkpoint")->required();
    verb->add_flag("--tensors", arguments->tensors, "List every tensor");
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp inspect delta.safetensors
  wisp inspect delta.safetensors --tensors
  wisp inspect model/ --json)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
