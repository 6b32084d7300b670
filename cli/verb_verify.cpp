#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct VerifyArguments {
    Common common;
    std::vector<std::string> files;
    std::string base;
};

std::string verdict(const VerifyReport& report) {
    if (!report.file.is_delta()) {
        return fmt::format("checkpoint, {}, state {}",
                           counted(report.file.tensors.size(), "tensor"), to_text(*report.state));
    }
    std::string text = fmt::format("{} delta, ", name_of(*report.file.codec));
    text += report.file.foreign ? "well-formed, carries no seal" : "seal holds";
    if (report.decoded) {
        text += report.base_matches ? ", base matches" : ", decodes on this base";
        if (report.result_matches) text += ", result matches";
        if (report.state) text += fmt::format(", leads to state {}", to_text(*report.state));
    }
    return text;
}

/// What was not looked at is null, not false.
nlohmann::ordered_json unless_unknown(bool looked_at, bool value) {
    return looked_at ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

int run(const VerifyArguments& arguments) {
    int worst = 0;
    for (const std::string& file : arguments.files) {
        const Stopwatch watch;
        std::optional<std::filesystem::path> base;
        if (!arguments.base.empty()) base = arguments.base;
        const auto report =
            verify(file, base, arguments.common.threads, progress_bar(arguments.common));
        if (!report) {
            const int code = report_error(arguments.common, "verify", report.error());
            if (worst == 0) worst = code;
            continue;
        }
        clear_progress();
        if (arguments.common.json) {
            nlohmann::ordered_json line = {
                {"verb", "verify"},
                {"ok", true},
                {"file", file},
                {"kind", report->file.is_delta() ? "delta" : "checkpoint"},
                {"sealed", unless_unknown(report->file.is_delta(), !report->file.foreign)},
                {"decoded", report->decoded},
                {"base_matches", unless_unknown(report->decoded, report->base_matches)},
                {"result_matches", unless_unknown(report->decoded, report->result_matches)},
                {"seconds", watch.seconds()}};
            if (report->file.is_delta()) line["codec"] = name_of(*report->file.codec);
            if (report->state) line["state"] = to_text(*report->state);
            print_json(line);
        } else if (!arguments.common.quiet) {
            fmt::print("ok  {}: {}\n", printable(file), verdict(*report));
        }
    }
    return worst;
}

}  // namespace

void add_verify(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("verify", "Prove that files are whole, and fit a base");
    auto arguments = std::make_shared<VerifyArguments>();
    verb->add_option("files", arguments->files, "Deltas or checkpoints")->required();
    verb->add_option("--base", arguments->base,
                     "Decode each delta against this checkpoint, without writing");
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp verify delta.safetensors
  wisp verify delta.safetensors --base step_41.safetensors
  wisp verify step_42.safetensors        # prints its state digest)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
