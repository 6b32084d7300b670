#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>

#include "duration.hpp"
#include "run_options.hpp"
#include "terminal.hpp"
#include "verbs.hpp"
#include "verdict_json.hpp"
#include "wisp/run_status.hpp"

namespace wisp::cli {
namespace {

struct StatusArguments {
    Common common;
    std::string run;
    bool check = false;
    Milliseconds max_age{0};
    std::optional<std::uint64_t> max_lag;
    TrustArguments trust;
};

// As Nagios, Icinga and their like read them.
constexpr int kUnknown = 3;

const char* mode_name(CommitMode mode) {
    return mode == CommitMode::kExclusive ? "exclusive" : "single-writer";
}

nlohmann::ordered_json to_json(const std::string& url, const RunStatus& status) {
    nlohmann::ordered_json json = {{"verb", "status"},
                                   {"ok", true},
                                   {"url", url},
                                   {"verdict", verdict_json(status.verdict)},
                                   {"run", status.run},
                                   {"mode", mode_name(status.mode)},
                                   {"codec", name_of(status.codec)},
                                   {"signed", status.is_signed},
                                   {"head", nullptr},
                                   {"expired", status.expired},
                                   {"floor_seq", status.floor_seq},
                                   {"anchors", nlohmann::ordered_json::array()},
                                   {"merged_deltas", status.merged_deltas},
                                   {"stored_objects", nullptr},
                                   {"stored_bytes", nullptr},
                                   {"join_bytes", nullptr},
                                   {"join_objects", nullptr},
                                   {"replicas", nlohmann::ordered_json::array()},
                                   {"branches", status.branches}};
    if (status.stored) {
        json["stored_objects"] = status.stored->objects;
        json["stored_bytes"] = status.stored->bytes;
    }
    if (status.join) {
        json["join_bytes"] = status.join->bytes;
        json["join_objects"] = status.join->objects;
    }
    if (status.head) {
        json["head"] = {{"seq", status.head->seq},
                        {"epoch", status.head->epoch},
                        {"step", status.head->step},
                        {"kind", name_of(status.head->kind)},
                        {"age_ms", status.head_age_ms},
                        {"writer", status.head->writer},
                        {"signer", nullptr},
                        {"state", to_text(status.head->state)},
                        {"hash", status.head->hash}};
        if (!status.head->signer.empty()) json["head"]["signer"] = status.head->signer;
    }
    for (const AnchorSummary& anchor : status.anchors) {
        json["anchors"].push_back({{"seq", anchor.seq},
                                   {"step", anchor.step},
                                   {"bytes", anchor.bytes},
                                   {"base_name", anchor.base_name}});
    }
    for (const ReplicaSummary& replica : status.replicas) {
        json["replicas"].push_back({{"id", replica.id},
                                    {"seq", replica.seq},
                                    {"step", replica.step},
                                    {"lag_steps", replica.lag_steps},
                                    {"age_ms", replica.seen_ms},
                                    {"status", name_of(replica.status)}});
    }
    return json;
}

std::string verdict_word(Severity severity) {
    const std::string word(colour_of(severity));
    switch (severity) {
        case Severity::kOk: return coloured(Colour::kGreen, word);
        case Severity::kWarning: return coloured(Colour::kYellow, word);
        case Severity::kCritical: return coloured(Colour::kRed, word);
    }
    return word;
}

void print_head(const RunStatus& status) {
    if (!status.head) {
        fmt::print("head      nothing was published yet\n");
        return;
    }
    const CommitSummary& head = *status.head;
    fmt::print("head      step {}, seq {}, epoch {}, {} ago by {}{}\n", head.step, head.seq,
               head.epoch, human_age(status.head_age_ms), printable(head.writer),
               status.expired ? coloured(Colour::kRed, ", EXPIRED") : "");
    fmt::print("state     {}\n", to_text(head.state));
}

void print_anchors(const RunStatus& status) {
    for (const AnchorSummary& anchor : status.anchors) {
        fmt::print("anchor    step {}, seq {}, {}", anchor.step, anchor.seq,
                   human_bytes(anchor.bytes));
        if (!anchor.base_name.empty()) fmt::print(" on base {}", printable(anchor.base_name));
        fmt::print("\n");
    }
}

/// Without a key or an identity from elsewhere, a signature is the bucket's own word.
std::string signature_text(const RunStatus& status, const TrustArguments& trust) {
    if (!status.head) return "";
    if (!status.is_signed) return ", unsigned";
    const bool named = !trust.keys.empty() || !trust.run.empty();
    return ", signed by " + printable(status.head->signer) +
           (named ? "" : " (unchecked: pass --trust or --run)");
}

void print_status(const std::string& url, const RunStatus& status, const TrustArguments& trust) {
    fmt::print("{}: run {}, {}, {}{}\n", printable(url), printable(status.run),
               mode_name(status.mode), name_of(status.codec), signature_text(status, trust));
    const RunVerdict& verdict = status.verdict;
    fmt::print("verdict   {}: {}\n", verdict_word(verdict.severity), printable(verdict.text));
    for (std::size_t i = 1; i < verdict.concerns.size(); ++i) {
        fmt::print("          {}: {}\n", verdict_word(verdict.concerns[i].severity),
                   printable(verdict.concerns[i].text));
    }
    print_head(status);
    print_anchors(status);
    fmt::print("merged    {}\n", counted(status.merged_deltas, "delta"));
    if (status.stored) {
        fmt::print("stored    {} in {}, floor at seq {}\n", human_bytes(status.stored->bytes),
                   counted(status.stored->objects, "object"), status.floor_seq);
    }
    if (status.join) {
        fmt::print("joining   reads {} in {}\n", human_bytes(status.join->bytes),
                   counted(status.join->objects, "object"));
    } else if (status.head) {
        fmt::print("joining   cannot be done: no anchor leads to the newest step\n");
    }
    for (const ReplicaSummary& replica : status.replicas) {
        fmt::print("replica   {}: step {}, {} behind, {}, seen {} ago\n", printable(replica.id),
                   replica.step, replica.lag_steps, name_of(replica.status),
                   human_age(replica.seen_ms));
    }
    for (const std::string& branch : status.branches) {
        fmt::print("branch    {}\n", printable(branch));
    }
}

/// One line on stdout, as monitoring systems read it: verdict, then figures after a bar.
void print_check(const RunVerdict& verdict, bool unknown, const RunStatus* status) {
    std::string word = unknown ? "unknown" : std::string(name_of(verdict.severity));
    for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    std::string text = printable(verdict.text);
    // A bar would begin the figures.
    std::ranges::replace(text, '|', '/');
    fmt::print("WISP {} - {}", word, text);
    if (status != nullptr && status->head) {
        std::uint64_t lag = 0;
        for (const ReplicaSummary& replica : status->replicas) {
            if (replica.status != ReplicaStatus::kStopped) lag = std::max(lag, replica.lag_steps);
        }
        fmt::print(" | step={} age={:.1f}s lag={} replicas={}", status->head->step,
                   static_cast<double>(status->head_age_ms) / 1000, lag, status->replicas.size());
    }
    fmt::print("\n");
}

int refuse(const StatusArguments& arguments, const Error& error) {
    if (!arguments.check) return report_error(arguments.common, "status", error);
    // Whether the run is well cannot be said of a store that does not answer, or of a wrong call.
    const bool unknown = error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kInvalid;
    const RunVerdict verdict = verdict_of(error);
    clear_progress();
    if (arguments.common.json) {
        report_error(arguments.common, "status", error);
    } else if (!arguments.common.quiet) {
        print_check(verdict, unknown, nullptr);
    }
    return unknown ? kUnknown : static_cast<int>(verdict.severity);
}

int run(const StatusArguments& arguments) {
    VerdictLimits limits{std::nullopt, arguments.max_lag};
    if (arguments.max_age.count() > 0) limits.age_ms = arguments.max_age.count();
    auto access = open_run(arguments.run, arguments.trust, arguments.common);
    if (!access) return refuse(arguments, access.error());
    // What is stored is no matter of health, and costs a listing of the bucket.
    const auto status = read_status(access->where, access->options, !arguments.check, limits);
    if (!status) return refuse(arguments, status.error());
    clear_progress();
    if (arguments.common.json) {
        print_json(to_json(arguments.run, *status));
    } else if (arguments.check && !arguments.common.quiet) {
        print_check(status->verdict, false, &*status);
    } else if (!arguments.common.quiet) {
        show_paged(arguments.common,
                   [&] { print_status(arguments.run, *status, arguments.trust); });
    }
    return arguments.check ? static_cast<int>(status->verdict.severity) : 0;
}

}  // namespace

void add_status(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("status", "Show where a run stands, and who follows it");
    auto arguments = std::make_shared<StatusArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    verb->add_flag("--check", arguments->check,
                   "One line for monitoring systems; exits with 0 (ok), 1 (warning), 2 (critical) "
                   "or 3 (unknown)");
    add_duration(*verb, "--max-age", arguments->max_age,
                 "Critical when the newest step is older than this", Milliseconds(1));
    verb->add_option("--max-lag", arguments->max_lag,
                     "Critical when a replica is more than N steps behind")
        ->type_name("N");
    add_trust(*verb, arguments->trust);
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp status s3://weights/qwen-rl
  wisp status s3://weights/qwen-rl --check --max-age 10m
  wisp status /shared/runs/a --json)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
