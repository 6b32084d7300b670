#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "terminal.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct DoctorArguments {
    Common common;
    std::string url;
    bool quick = false;
};

/// What the table comes to; in agreement with it, and with the exit code.
std::string verdict_of(const DoctorReport& report) {
    std::string failed;
    std::string unanswered;
    bool only_creates = true;
    bool tried = true;
    for (const Finding& finding : report.findings) {
        const bool creates = finding.name.starts_with("create_");
        if (creates && finding.verdict == Verdict::kSkipped) tried = false;
        if (finding.verdict == Verdict::kUndecided) {
            unanswered += (unanswered.empty() ? "" : ", ") + finding.name;
        }
        if (finding.verdict != Verdict::kFail) continue;
        only_creates = only_creates && creates;
        failed += (failed.empty() ? "" : ", ") + finding.name;
    }
    if (failed.empty() && !unanswered.empty()) {
        return fmt::format(
            "Could not be decided: the store gave no answer to {}. That proves nothing against it; "
            "try again when it answers.",
            unanswered);
    }
    if (failed.empty() && report.exclusive_create) {
        return fmt::format(
            "Fit for runs: conditional writes hold, and several writers are safe from each other. "
            "{} tell that: a store that lets two win once in {} is caught 19 times in 20.",
            counted(report.races, "race"), std::max<std::uint64_t>(report.races / 3, 1));
    }
    if (!only_creates || (!failed.empty() && !report.convicted)) {
        return fmt::format("Not fit for runs: {} failed; the lines above say what to do.", failed);
    }
    return fmt::format(
        "Fit for runs of one writer only ('wisp init --single-writer'): conditional writes {}.",
        failed.empty() && !tried ? "cannot be tried here" : "do not hold");
}

std::string verdict_word(Verdict verdict) {
    const std::string word = fmt::format("{:9}", name_of(verdict));
    switch (verdict) {
        case Verdict::kPass: return coloured(Colour::kGreen, word);
        case Verdict::kWarn: return coloured(Colour::kYellow, word);
        case Verdict::kFail: return coloured(Colour::kRed, word);
        case Verdict::kSkipped: return coloured(Colour::kDim, word);
        case Verdict::kUndecided: return coloured(Colour::kYellow, word);
    }
    return word;
}

void print_table(const DoctorReport& report) {
    for (const Finding& finding : report.findings) {
        fmt::print("{}  {:18}  {}\n", verdict_word(finding.verdict), finding.name,
                   printable(finding.detail));
        if (!finding.cure.empty()) fmt::print("{:31}→ {}\n", "", printable(finding.cure));
    }
    fmt::print("\n{}\n", verdict_of(report));
}

/// Null: it could not be decided.
nlohmann::ordered_json exclusive_json(const DoctorReport& report) {
    if (report.healthy && report.undecided) return nullptr;
    return report.exclusive_create;
}

nlohmann::ordered_json as_json(const DoctorArguments& arguments, const DoctorReport& report,
                               double seconds) {
    auto findings = nlohmann::ordered_json::array();
    for (const Finding& finding : report.findings) {
        findings.push_back({{"name", finding.name},
                            {"verdict", name_of(finding.verdict)},
                            {"detail", finding.detail},
                            {"cure", finding.cure}});
    }
    return {{"verb", "doctor"},
            {"ok", report.healthy && !report.undecided},
            {"verdict", verdict_of(report)},
            {"url", arguments.url},
            {"exclusive_create", exclusive_json(report)},
            {"races", report.races},
            {"findings", std::move(findings)},
            {"seconds", seconds}};
}

int run(const DoctorArguments& arguments) {
    const Stopwatch watch;
    const auto location = open_location(arguments.url);
    if (!location) return report_error(arguments.common, "doctor", location.error());
    DoctorOptions options;
    options.quick = arguments.quick;
    options.progress = probe_line(arguments.common);
    const auto report = examine(*location, options);
    if (!report) return report_error(arguments.common, "doctor", report.error());
    clear_progress();
    if (arguments.common.json) {
        print_json(as_json(arguments, *report, watch.seconds()));
    }
    const bool sound = report->healthy && report->exclusive_create && !report->undecided;
    if (!arguments.common.json && (!arguments.common.quiet || !sound)) print_table(*report);
    if (report->healthy && report->undecided) return exit_code(ErrorKind::kUnavailable);
    return sound ? 0 : exit_code(ErrorKind::kIncapable);
}

}  // namespace

void add_doctor(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("doctor", "Try out whether a bucket or folder can hold runs");
    auto arguments = std::make_shared<DoctorArguments>();
    verb->add_option(
            "url", arguments->url,
            "s3://bucket/prefix, hf://buckets/namespace/name/prefix, file:///path, or a path")
        ->required();
    verb->add_flag("--quick", arguments->quick,
                   "Fewer and shorter races, and no object of several parts");
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp doctor s3://weights/runs
  wisp doctor hf://buckets/acme/weights
  wisp doctor /mnt/shared/runs --quick --json

Writes only under .wisp-doctor-<random>/ there, and removes it again. Exit code 16: the store does
not keep a promise wisp builds on; without conditional writes use it with one writer only. 5: it
gave too few answers to decide.)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
