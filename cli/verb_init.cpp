#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "run_options.hpp"
#include "verbs.hpp"
#include "watched_store.hpp"

namespace wisp::cli {
namespace {

struct InitArguments {
    Common common;
    std::string run;
    std::string branch_of;
    std::string codec;
    std::optional<std::uint64_t> slices;
    bool single_writer = false;
    bool no_probe = false;
    SignArguments sign;
    std::vector<std::string> roots;
    TrustArguments trust;
};

struct BranchPoint {
    std::string url;
    std::optional<std::uint64_t> step;
};

/// "<run-url>@<step>"; an '@' that no number follows belongs to the address.
BranchPoint parse_branch_point(const std::string& text) {
    const std::size_t at = text.rfind('@');
    if (at == std::string::npos || at + 1 == text.size()) return {text, std::nullopt};
    std::uint64_t step = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, step);
    if (error != std::errc() || stop != end) return {text, std::nullopt};
    return {text.substr(0, at), step};
}

/// Racing writers are only safe from each other where a conditional write lets one of them win.
Result<void> probe(const InitArguments& arguments) {
    if (arguments.single_writer || arguments.no_probe) return {};
    const auto where = open_location(arguments.run);
    if (!where) return std::unexpected(where.error());
    DoctorOptions options;
    options.quick = true;
    options.progress = probe_line(arguments.common);
    const auto report = examine(*where, options);
    clear_progress();
    if (!report) return std::unexpected(report.error());
    for (const Finding& finding : report->findings) {
        if (finding.verdict != Verdict::kFail) continue;
        if (report->convicted && finding.name.starts_with("create_")) continue;
        return fail(ErrorKind::kIncapable,
                    fmt::format("{} cannot hold runs: {}: {} ('wisp doctor' says more)",
                                printable(arguments.run), finding.name, printable(finding.detail)));
    }
    if (report->exclusive_create) return {};
    for (const Finding& finding : report->findings) {
        if (!report->healthy || finding.verdict != Verdict::kUndecided) continue;
        return fail(ErrorKind::kUnavailable,
                    fmt::format("whether {} is safe for several writers could not be decided: {}: "
                                "{}; try again when it answers",
                                printable(arguments.run), finding.name, printable(finding.detail)));
    }
    return fail(ErrorKind::kIncapable,
                fmt::format("{} lets several racing writers win, so a run there needs to have one "
                            "writer only: pass --single-writer, or use another store ('wisp "
                            "doctor' says more)",
                            printable(arguments.run)));
}

Result<InitReport> start(const InitArguments& arguments) {
    auto access = open_run(arguments.run, arguments.trust, arguments.common);
    if (!access) return std::unexpected(std::move(access).error());
    InitOptions options;
    options.run = access->options;
    if (arguments.single_writer) options.mode = CommitMode::kSingleWriter;
    options.codec = parse_codec(arguments.codec);
    if (arguments.slices) options.slices = static_cast<unsigned>(*arguments.slices);
    auto signer = run_signer(arguments.sign);
    if (!signer) return std::unexpected(std::move(signer).error());
    options.signer = std::move(*signer);
    for (const std::string& text : arguments.roots) {
        auto root = PublicKey::load(text);
        if (!root) return std::unexpected(std::move(root).error());
        options.roots.push_back(*root);
    }
    if (!arguments.branch_of.empty()) {
        const BranchPoint point = parse_branch_point(arguments.branch_of);
        auto origin = open_location(point.url);
        if (!origin) return std::unexpected(std::move(origin).error());
        options.branch_of = watched(std::move(*origin), arguments.common);
        options.branch_step = point.step;
    }
    // A run that is there already is refused without touching its store.
    if (const auto there = read_log(access->where, 1, access->options);
        there || there.error().kind != ErrorKind::kNoRun) {
        return init_run(access->where, options);
    }
    if (auto probed = probe(arguments); !probed) {
        return std::unexpected(std::move(probed).error());
    }
    return init_run(access->where, options);
}

int run(const InitArguments& arguments) {
    const auto report = start(arguments);
    if (!report) return report_error(arguments.common, "init", report.error());
    clear_progress();
    const char* const mode = arguments.single_writer ? "single-writer" : "exclusive";
    if (arguments.common.json) {
        nlohmann::ordered_json line = {{"verb", "init"},
                                       {"ok", true},
                                       {"url", arguments.run},
                                       {"run", report->run},
                                       {"mode", mode},
                                       {"codec", name_of(report->codec)},
                                       {"signed", report->is_signed},
                                       {"already_there", report->already_there}};
        if (report->branch_step) {
            line["branch_step"] = *report->branch_step;
            line["shared_bytes"] = report->shared_bytes;
        }
        print_json(line);
    } else if (!arguments.common.quiet) {
        fmt::print("{}: run {}, {}", printable(arguments.run), printable(report->run), mode);
        fmt::print(", {}, {}", name_of(report->codec), report->is_signed ? "signed" : "unsigned");
        if (report->branch_step) {
            fmt::print(", a branch at step {} that shares {}", *report->branch_step,
                       human_bytes(report->shared_bytes));
        }
        fmt::print("{}\n", report->already_there ? " (an interrupted start, completed)" : "");
    }
    return 0;
}

}  // namespace

void add_init(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("init", "Start a run: a place to publish to");
    auto arguments = std::make_shared<InitArguments>();
    verb->add_option(
            "run", arguments->run,
            "s3://bucket/prefix, hf://buckets/namespace/name/prefix, file:///path or a folder")
        ->required();
    verb->add_option("--branch-of", arguments->branch_of,
                     "Start at a step of another run in the same bucket, without copying; its "
                     "newest step by default")
        ->type_name("RUN[@STEP]");
    verb->add_option("--codec", arguments->codec,
                     "swift: steps are in service soonest; compact: a quarter less to send, and "
                     "each costs a walk over the model; kept by the run")
        ->check(one_of({"compact", "swift"}))
        ->default_str("swift, or that of --branch-of");
    verb->add_option("--slices", arguments->slices,
                     "Cut each delta into so many slices, so that a host of an engine that spans "
                     "several fetches its share alone; 0: not at all, which is a little smaller")
        ->check(in_range(0, 64))
        ->default_str("4 from 64 GiB of weights on, else 0");
    verb->add_flag("--single-writer", arguments->single_writer,
                   "For stores without conditional writes: forks are found, not prevented");
    verb->add_flag("--no-probe", arguments->no_probe,
                   "Do not try first whether the store's conditional writes work");
    add_signing(*verb, arguments->sign);
    verb->add_option("--root", arguments->roots,
                     "Make a signed run: nothing counts in it that this key has not signed or "
                     "certified; text or file; repeatable; the key of --sign-key by default")
        ->type_name("KEY")
        ->allow_extra_args(false);
    add_trust(*verb, arguments->trust);
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp init s3://weights/qwen-rl
  wisp init /shared/runs/a
  wisp init s3://weights/qwen-rl --sign-key trainer.key
  wisp init s3://weights/qwen-rl --root root.key.pub
  wisp init s3://weights/tuned --branch-of s3://weights/qwen-rl@200)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
