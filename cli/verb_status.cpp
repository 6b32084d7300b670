#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "run_options.hpp"
#include "verbs.hpp"
#include "wisp/run_status.hpp"

namespace wisp::cli {
namespace {

struct StatusArguments {
    Common common;
    std::string run;
    TrustArguments trust;
};

const char* mode_name(CommitMode mode) {
    return mode == CommitMode::kExclusive ? "exclusive" : "single-writer";
}

nlohmann::ordered_json to_json(const std::string& url, const RunStatus& status) {
    nlohmann::ordered_json json = {{"verb", "status"},
                                   {"ok", true},
                                   {"url", url},
                                   {"run", status.run},
                                   {"mode", mode_name(status.mode)},
                                   {"codec", name_of(status.codec)},
                                   {"signed", status.is_signed},
                                   {"head", nullptr},
                                   {"expired", status.expired},
                                   {"floor_seq", status.floor_seq},
                                   {"anchors", nlohmann::ordered_json::array()},
                                   {"merged_deltas", status.merged_deltas},
                                   {"stored_objects", status.stored_objects},
                                   {"stored_bytes", status.stored_bytes},
                                   {"join_bytes", status.join_bytes},
                                   {"join_objects", status.join_objects},
                                   {"replicas", nlohmann::ordered_json::array()},
                                   {"branches", status.branches}};
    if (status.head) {
        json["head"] = {{"seq", status.head->seq},       {"epoch", status.head->epoch},
                        {"step", status.head->step},     {"kind", name_of(status.head->kind)},
                        {"age_ms", status.head_age_ms},  {"writer", status.head->writer},
                        {"signer", status.head->signer}, {"state", to_text(status.head->state)},
                        {"hash", status.head->hash}};
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
                                    {"status", replica.status}});
    }
    return json;
}

void print_head(const RunStatus& status) {
    if (!status.head) {
        fmt::print("head      nothing was published yet\n");
        return;
    }
    const CommitSummary& head = *status.head;
    fmt::print("head      step {}, seq {}, epoch {}, {} ago by {}{}\n", head.step, head.seq,
               head.epoch, human_age(status.head_age_ms), printable(head.writer),
               status.expired ? ", EXPIRED" : "");
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
    print_head(status);
    print_anchors(status);
    fmt::print("merged    {} deltas\n", status.merged_deltas);
    fmt::print("stored    {} in {}, floor at seq {}\n", human_bytes(status.stored_bytes),
               counted(status.stored_objects, "object"), status.floor_seq);
    fmt::print("joining   reads {} in {}\n", human_bytes(status.join_bytes),
               counted(status.join_objects, "object"));
    for (const ReplicaSummary& replica : status.replicas) {
        fmt::print("replica   {}: step {}, {} behind, {}, seen {} ago\n", printable(replica.id),
                   replica.step, replica.lag_steps, printable(replica.status),
                   human_age(replica.seen_ms));
    }
    for (const std::string& branch : status.branches) {
        fmt::print("branch    {}\n", printable(branch));
    }
}

int run(const StatusArguments& arguments) {
    auto access = open_run(arguments.run, arguments.trust);
    if (!access) return report_error(arguments.common, "status", access.error());
    const auto status = read_status(access->where, access->options);
    if (!status) return report_error(arguments.common, "status", status.error());
    if (arguments.common.json) {
        print_json(to_json(arguments.run, *status));
    } else if (!arguments.common.quiet) {
        print_status(arguments.run, *status, arguments.trust);
    }
    return 0;
}

}  // namespace

void add_status(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("status", "Show where a run stands, and who follows it");
    auto arguments = std::make_shared<StatusArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    add_trust(*verb, arguments->trust);
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp status s3://weights/qwen-rl
  wisp status /shared/runs/a --json)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
