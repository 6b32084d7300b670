#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "diagnostics.hpp"
#include "duration.hpp"
#include "metrics.hpp"
#include "publish_checks.hpp"
#include "publish_run.hpp"
#include "publish_watch.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

// A bucket in TRL's layout has no room for these.
const std::vector<std::string> kRunOnlyPublishOptions = {
    "--take-over", "--rewind",  "--allow-schema-change", "--base",     "--base-name",
    "--part-size", "--expires", "--heartbeat",           "--sign-key", "--certificate",
    "--trust",     "--watch"};

Result<PublishReport> publish_to_trl(const PublishArguments& arguments,
                                     const Checkpoint& checkpoint) {
    auto access = open_run(arguments.run, arguments.trust, arguments.common);
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

int run_heartbeat(const PublishArguments& arguments) {
    const auto beaten = with_publisher(
        arguments,
        [](Publisher& publisher, Replica&) -> Result<void> { return publisher.heartbeat(); });
    if (!beaten) return report_error(arguments.common, "publish", beaten.error());
    clear_progress();
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

void add_watching(Command& verb, PublishArguments& arguments) {
    auto* watch =
        verb.add_option(
                "--watch", arguments.watch,
                "Publish each checkpoint folder that is completed in DIR, in order: "
                "step_12, checkpoint-500, weight_update_v3; or a pattern, 'DIR/step_{step}'")
            ->type_name("DIR");
    verb.add_option("--ready", arguments.ready,
                    "With --watch: the file whose presence says that a folder is complete, e.g. "
                    "STABLE; without one, a folder in which nothing changes any more is")
        ->type_name("NAME")
        ->needs(watch);
    add_duration(verb, "--quiet-for", arguments.quiet,
                 "With --watch: how long nothing may change in a folder that has no such file",
                 Milliseconds(1))
        ->default_str("5s")
        ->needs(watch);
    add_duration(verb, "--poll", arguments.poll, "With --watch: how often to look", Milliseconds(1))
        ->default_str("1s")
        ->needs(watch);
    verb.add_flag("--once", arguments.once, "With --watch: publish what is there, and end")
        ->needs(watch);
    verb.add_option("--until-step", arguments.until_step,
                    "With --watch: end when this step is published")
        ->check(not_negative())
        ->needs(watch);
}

void check_source(const Command& verb, const PublishArguments& arguments) {
    const int sources = int{!arguments.checkpoint.empty()} + int{arguments.heartbeat} +
                        int{!arguments.watch.empty()};
    if (sources != 1) {
        refuse_usage("checkpoint", "name a checkpoint, or pass --watch DIR or --heartbeat");
    }
    if (arguments.watch.empty()) return;
    for (const char* const option : {"--step", "--rewind"}) {
        if (verb.count(option) == 0) continue;
        refuse_usage(option, "with --watch the folders say which step they are");
    }
    const bool plain = arguments.ready.find('/') == std::string::npos && arguments.ready != "." &&
                       arguments.ready != "..";
    if (!plain) refuse_usage("--ready", "give the name of a file in each folder");
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
    add_watching(verb, arguments);
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
  wisp publish s3://weights/qwen-rl --watch run/broadcasts --ready STABLE
  wisp publish s3://weights/trl-run out/ --layout trl --codec gap
  wisp publish s3://weights/qwen-rl out/ --sign-key trainer.key --certificate trainer.cert)");
    verb->callback([verb, arguments, &outcome] {
        if (arguments->layout == "trl") refuse_for_trl(*verb, kRunOnlyPublishOptions);
        if (arguments->layout != "trl" && !arguments->codec.empty()) {
            refuse_usage("--codec",
                         "a run keeps the codec it was started with: 'wisp init --codec'");
        }
        check_source(*verb, *arguments);
        outcome.exit_code =
            arguments->watch.empty() ? run(*arguments) : publish_folders(*arguments);
    });
}

}  // namespace wisp::cli
