#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "diagnostics.hpp"
#include "duration.hpp"
#include "metrics.hpp"
#include "publish_checks.hpp"
#include "run_options.hpp"
#include "verbs.hpp"
#include "wisp/run_status.hpp"

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

struct PublishArguments {
    Common common;
    std::string run;
    std::string layout = "wisp";
    std::string checkpoint;
    std::optional<std::uint64_t> step;
    std::uint64_t anchor_every = 0;
    std::string codec;  // of TRL's layout
    std::string baseline;
    std::string base;
    std::string base_name;
    bool take_over = false;
    bool rewind = false;
    bool allow_schema_change = false;
    bool heartbeat = false;
    std::uint64_t part_bytes = std::uint64_t{1} << 30;
    Milliseconds expires{0};
    bool expires_given = false;
    std::string metrics;
    SignArguments sign;
    TrustArguments trust;
};

struct Published {
    PublishReport report;
    std::uint64_t checkpoint_bytes = 0;
};

// A bucket in TRL's layout has no room for these.
const std::vector<std::string> kRunOnlyPublishOptions = {
    "--take-over", "--rewind",  "--allow-schema-change", "--base",     "--base-name",
    "--part-size", "--expires", "--heartbeat",           "--sign-key", "--certificate",
    "--trust"};

/// Each run has its own: two runs published from one machine must not share a baseline.
Result<fs::path> default_baseline(const RunAccess& access, bool trl) {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    fs::path root;
    if (cache != nullptr && *cache == '/') {
        root = cache;
    } else if (home != nullptr && *home == '/') {
        root = fs::path(home) / ".cache";
    } else {
        return fail(ErrorKind::kInvalid,
                    "there is no place for the baseline, since neither XDG_CACHE_HOME nor HOME is "
                    "set; name one with --baseline");
    }
    root = root / "wisp" / "baselines";
    if (trl) return root / trl_run_id(access.where);
    auto status = read_status(access.where, access.options, false);
    if (!status) return std::unexpected(std::move(status).error());
    return root / status->run;
}

Result<std::unique_ptr<Replica>> open_baseline(const PublishArguments& arguments,
                                               const RunAccess& access) {
    Result<fs::path> folder = fs::path(arguments.baseline);
    if (arguments.baseline.empty()) folder = default_baseline(access, arguments.layout == "trl");
    if (!folder) return std::unexpected(std::move(folder).error());
    FolderReplicaOptions cache;
    cache.threads = arguments.common.threads;
    cache.durable = false;
    return open_folder_replica(*folder, cache);
}

Result<PublishOptions> publish_options(const PublishArguments& arguments, const RunAccess& access) {
    PublishOptions options;
    options.run = access.options;
    auto signer = run_signer(arguments.sign);
    if (!signer) return std::unexpected(std::move(signer).error());
    options.signer = std::move(*signer);
    options.anchor_every = arguments.anchor_every;
    options.public_base = optional_path(arguments.base);
    options.public_base_name = arguments.base_name;
    options.threads = arguments.common.threads;
    options.part_bytes = arguments.part_bytes;
    if (arguments.expires_given) options.expires_after = arguments.expires;
    options.take_over = arguments.take_over;
    options.progress = progress_bar(arguments.common);
    return options;
}

/// Calls `act` with a publisher and the baseline it stands on.
template <class Act>
auto with_publisher(const PublishArguments& arguments, Act act)
    -> decltype(act(std::declval<Publisher&>(), std::declval<Replica&>())) {
    auto access = open_run(arguments.run, arguments.trust);
    if (!access) return std::unexpected(std::move(access).error());
    auto options = publish_options(arguments, *access);
    if (!options) return std::unexpected(std::move(options).error());
    auto baseline = open_baseline(arguments, *access);
    if (!baseline) return std::unexpected(std::move(baseline).error());
    auto publisher = Publisher::open(access->where, **baseline, *options);
    if (!publisher) return std::unexpected(std::move(publisher).error());
    return act(*publisher, **baseline);
}

Result<PublishReport> publish_to_trl(const PublishArguments& arguments,
                                     const Checkpoint& checkpoint) {
    auto access = open_run(arguments.run, arguments.trust);
    if (!access) return std::unexpected(std::move(access).error());
    auto baseline = open_baseline(arguments, *access);
    if (!baseline) return std::unexpected(std::move(baseline).error());
    TrlPublishOptions options;
    options.codec = parse_codec(arguments.codec).value_or(options.codec);
    if (arguments.anchor_every > 0) options.anchor_every = arguments.anchor_every;
    options.threads = arguments.common.threads;
    options.progress = progress_bar(arguments.common);
    return publish_trl(access->where, **baseline, checkpoint, arguments.step, options);
}

Result<Published> publish(const PublishArguments& arguments) {
    if (const auto checked = refuse_delta(arguments.checkpoint); !checked) {
        return std::unexpected(checked.error());
    }
    auto checkpoint = Checkpoint::open(arguments.checkpoint);
    if (!checkpoint) return std::unexpected(std::move(checkpoint).error());
    Published published;
    for (const CheckpointFile& file : checkpoint->files()) {
        published.checkpoint_bytes += file.size_bytes;
    }
    if (arguments.layout == "trl") {
        auto report = publish_to_trl(arguments, *checkpoint);
        if (!report) return std::unexpected(std::move(report).error());
        published.report = std::move(*report);
        return published;
    }
    const auto act = [&](Publisher& publisher, Replica& baseline) -> Result<Published> {
        const PublishIntent intent{arguments.step.value_or(publisher.next_step()),
                                   arguments.allow_schema_change, arguments.rewind};
        const auto meant = check_intent(intent, *checkpoint, publisher, baseline);
        if (!meant) return std::unexpected(meant.error());
        auto report = publisher.publish(*checkpoint, intent.step);
        if (!report) return std::unexpected(std::move(report).error());
        published.report = std::move(*report);
        return published;
    };
    return with_publisher(arguments, act);
}

void print_published(const PublishArguments& arguments, const Published& published,
                     double seconds) {
    const PublishReport& report = published.report;
    clear_progress(arguments.common);
    if (report.anchor_failure) {
        tell_error(Level::kWarning, "publish", report.anchor_failure->kind,
                   fmt::format("step {} is committed, but its anchor failed and is due again: {}",
                               report.step, report.anchor_failure->text));
    }
    if (arguments.common.json) {
        print_json({{"verb", "publish"},
                    {"ok", true},
                    {"url", arguments.run},
                    {"step", report.step},
                    {"seq", report.seq},
                    {"epoch", report.epoch},
                    {"kind", report.kind_text()},
                    {"anchored", report.anchored},
                    {"anchor_failure", report.anchor_failure ? report.anchor_failure->text : ""},
                    {"rewound", report.rewound},
                    {"changed_elements", report.changed_elements},
                    {"total_elements", report.total_elements},
                    {"checkpoint_bytes", published.checkpoint_bytes},
                    {"delta_bytes", report.delta_bytes},
                    {"anchor_bytes", report.anchor_bytes},
                    {"uploaded_bytes", report.uploaded_bytes},
                    {"reused_bytes", report.reused_bytes},
                    {"ratio", ratio(published.checkpoint_bytes, report.delta_bytes)},
                    {"state", to_text(report.state)},
                    {"diff_seconds", report.diff_seconds},
                    {"upload_seconds", report.upload_seconds},
                    {"commit_seconds", report.commit_seconds},
                    {"baseline_seconds", report.baseline_seconds},
                    {"seconds", seconds}});
        return;
    }
    if (arguments.common.quiet) return;
    fmt::print("step {}, seq {}: ", report.step, report.seq);
    if (report.present) {
        fmt::print("was published already\n");
        return;
    }
    fmt::print("{} of {} changed, {}", human_count(report.changed_elements),
               human_count(report.total_elements), human_bytes(report.uploaded_bytes));
    if (report.delta_bytes > 0) {
        fmt::print(", delta {} ({:.0f}x smaller)", human_bytes(report.delta_bytes),
                   ratio(published.checkpoint_bytes, report.delta_bytes));
    }
    if (report.anchored) fmt::print(", anchor {}", human_bytes(report.anchor_bytes));
    if (report.rewound) fmt::print(", rewound to epoch {}", report.epoch);
    fmt::print("; diff {}, upload {}, commit {}, baseline {}\n", human_seconds(report.diff_seconds),
               human_seconds(report.upload_seconds), human_seconds(report.commit_seconds),
               human_seconds(report.baseline_seconds));
}

int run_heartbeat(const PublishArguments& arguments) {
    const auto beaten = with_publisher(
        arguments,
        [](Publisher& publisher, Replica&) -> Result<void> { return publisher.heartbeat(); });
    if (!beaten) return report_error(arguments.common, "publish", beaten.error());
    clear_progress(arguments.common);
    if (arguments.common.json) {
        print_json(
            {{"verb", "publish"}, {"ok", true}, {"url", arguments.run}, {"kind", "heartbeat"}});
    } else if (!arguments.common.quiet) {
        fmt::print("{}: said that the trainer lives\n", printable(arguments.run));
    }
    return 0;
}

int run(const PublishArguments& arguments) {
    if (arguments.heartbeat) return run_heartbeat(arguments);
    const Stopwatch watch;
    const auto metrics = serve_metrics(arguments.common, "publish", arguments.metrics,
                                       {{"run", arguments.run}}, MetricsOf::kPublisher);
    if (!metrics) return report_error(arguments.common, "publish", metrics.error());
    const auto published = publish(arguments);
    if (*metrics && published) (*metrics)->on_published(published->report);
    if (*metrics && !published) (*metrics)->on_publish_failure(published.error().kind);
    if (!published) return report_error(arguments.common, "publish", published.error());
    print_published(arguments, *published, watch.seconds());
    return 0;
}

/// A count, or "auto".
void add_anchor_every(Command& verb, std::uint64_t& into) {
    verb.add_option_function(
            "--anchor-every",
            [&into](const std::string& text) {
                into = 0;
                if (text == "auto") return;
                const char* const end = text.data() + text.size();
                const auto [stop, error] = std::from_chars(text.data(), end, into);
                if (error == std::errc() && stop == end && into > 0) return;
                refuse_usage("--anchor-every", "give a count of steps, or auto");
            },
            "A whole checkpoint every N steps; auto: when late joiners would read as much, or "
            "every 10 with --layout trl")
        ->type_name("N|auto")
        ->default_str("auto");
}

void add_options(Command& verb, PublishArguments& arguments) {
    verb.add_option("--step", arguments.step, "Step to publish as; one after the newest by default")
        ->check(not_negative());
    add_layout(verb, arguments.layout);
    add_anchor_every(verb, arguments.anchor_every);
    verb.add_option("--codec", arguments.codec,
                    "Of --layout trl: plain, or gap, which is smaller; a run has its own, see "
                    "'wisp init'")
        ->check(one_of({"plain", "gap"}))
        ->default_str("plain");
    verb.add_option("--baseline", arguments.baseline,
                    "Folder for the last published state; in the user's cache by default")
        ->type_name("DIR");
    verb.add_flag("--take-over", arguments.take_over,
                  "Take the run back from a writer that took it over");
    verb.add_flag("--rewind", arguments.rewind,
                  "The step is not after the newest: training was set back, replicas follow");
    verb.add_flag("--allow-schema-change", arguments.allow_schema_change,
                  "The checkpoint has other tensors than the run; replicas become it");
    auto* base = verb.add_option("--base", arguments.base,
                                 "Write anchors as a delta from this checkpoint, which replicas "
                                 "get elsewhere")
                     ->type_name("CHECKPOINT");
    verb.add_option("--base-name", arguments.base_name, "The public name of --base")
        ->type_name("NAME")
        ->needs(base);
    verb.add_option("--part-size", arguments.part_bytes,
                    "Cut larger objects into parts of this size, e.g. 512MB")
        ->type_name("BYTES")
        ->takes_size_units()
        ->check(positive());
    add_duration(verb, "--expires", arguments.expires,
                 "Replicas call the run stale after this without a new commit; 0: never; 1d by "
                 "default if the run is signed")
        ->each([&arguments](const std::string&) { arguments.expires_given = true; });
    verb.add_flag("--heartbeat", arguments.heartbeat,
                  "Publish no weights, only say that the trainer lives");
    add_metrics(verb, arguments.metrics);
    add_signing(verb, arguments.sign);
    add_trust(verb, arguments.trust);
}

}  // namespace

void add_publish(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("publish", "Publish a checkpoint as the next step of a run");
    auto arguments = std::make_shared<PublishArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    verb->add_option("checkpoint", arguments->checkpoint, "Weights to publish");
    add_options(*verb, *arguments);
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp publish s3://weights/qwen-rl step_42.safetensors --step 42
  wisp publish /shared/runs/a checkpoints/latest --anchor-every 50
  wisp publish s3://weights/trl-run out/ --layout trl --codec gap
  wisp publish s3://weights/qwen-rl out/ --sign-key trainer.key --certificate trainer.cert)");
    verb->callback([verb, arguments, &outcome] {
        if (arguments->layout == "trl") refuse_for_trl(*verb, kRunOnlyPublishOptions);
        if (arguments->layout != "trl" && !arguments->codec.empty()) {
            refuse_usage("--codec",
                         "a run keeps the codec it was started with: 'wisp init --codec'");
        }
        if (arguments->checkpoint.empty() != arguments->heartbeat) {
            refuse_usage("checkpoint", "name a checkpoint, or pass --heartbeat");
        }
        outcome.exit_code = run(*arguments);
    });
}

}  // namespace wisp::cli
