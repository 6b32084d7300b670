#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "run_options.hpp"
#include "terminal.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct LogArguments {
    Common common;
    std::string run;
    std::uint64_t count = 20;
    TrustArguments trust;
};

nlohmann::ordered_json to_json(const CommitSummary& line) {
    nlohmann::ordered_json json = {{"seq", line.seq},
                                   {"epoch", line.epoch},
                                   {"step", line.step},
                                   {"kind", name_of(line.kind)},
                                   {"time_ms", line.time_ms},
                                   {"changed_elements", line.changed_elements},
                                   {"total_elements", line.total_elements},
                                   {"delta_bytes", line.delta_bytes},
                                   {"anchor_bytes", line.anchor_bytes},
                                   {"state", to_text(line.state)},
                                   {"writer", line.writer},
                                   {"signer", nullptr},
                                   {"rewind_from", nullptr},
                                   {"hash", line.hash}};
    if (!line.signer.empty()) json["signer"] = line.signer;
    if (line.rewind_from) json["rewind_from"] = *line.rewind_from;
    return json;
}

std::string bytes_text(const CommitSummary& line) {
    const std::uint64_t bytes = line.delta_bytes + line.anchor_bytes;
    return bytes == 0 ? "-" : human_bytes(bytes);
}

std::string note(const CommitSummary& line) {
    std::string text = printable(line.writer);
    if (!line.signer.empty()) text += ", signed by " + printable(line.signer);
    if (line.rewind_from) text += fmt::format(", back from step {}", *line.rewind_from);
    return text;
}

/// Most are deltas; what is none stands out.
std::string kind_word(const CommitSummary& line) {
    const std::string word = fmt::format("{:10}", name_of(line.kind));
    return line.kind == CommitKind::kDelta ? word : coloured(Colour::kGreen, word);
}

void print_table(const std::vector<CommitSummary>& lines) {
    if (lines.empty()) {
        fmt::print("nothing was published yet\n");
        return;
    }
    const std::string title =
        fmt::format("{:>8} {:>6} {:>8}  {:10} {:>12} {:>9}  {:19}  {}", "seq", "epoch", "step",
                    "kind", "changed", "bytes", "time (UTC)", "writer");
    fmt::print("{}\n", coloured(Colour::kBold, title));
    for (const CommitSummary& line : lines) {
        fmt::print("{:>8} {:>6} {:>8}  {} {:>12} {:>9}  {:19}  {}\n", line.seq, line.epoch,
                   line.step, kind_word(line), human_count(line.changed_elements), bytes_text(line),
                   human_time(line.time_ms), note(line));
    }
}

int run(const LogArguments& arguments) {
    auto access = open_run(arguments.run, arguments.trust, arguments.common);
    if (!access) return report_error(arguments.common, "log", access.error());
    const auto lines = read_log(access->where, arguments.count, access->options);
    if (!lines) return report_error(arguments.common, "log", lines.error());
    clear_progress();
    if (arguments.common.json) {
        nlohmann::ordered_json commits = nlohmann::ordered_json::array();
        for (const CommitSummary& line : *lines) commits.push_back(to_json(line));
        print_json({{"verb", "log"}, {"ok", true}, {"url", arguments.run}, {"commits", commits}});
    } else if (!arguments.common.quiet) {
        show_paged(arguments.common, [&] { print_table(*lines); });
    }
    return 0;
}

}  // namespace

void add_log(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("log", "List the newest commits of a run");
    auto arguments = std::make_shared<LogArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    verb->add_option("-n,--limit", arguments->count, "How many commits")
        ->check(in_range(std::uint64_t{1}, std::uint64_t{1'000'000}))
        ->capture_default_str();
    add_trust(*verb, arguments->trust);
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp log s3://weights/qwen-rl
  wisp log /shared/runs/a -n 100 --json)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
