#include "publish_run.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "diagnostics.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"

namespace wisp::cli {

namespace fs = std::filesystem;

namespace {

Result<fs::path> default_baseline(const RunAccess& access, bool trl) {
    std::string run_id;
    if (trl) {
        run_id = trl_run_id(access.where);
    } else {
        auto status = read_status(access.where, access.options, false);
        if (!status) return std::unexpected(std::move(status).error());
        run_id = status->run;
    }
    auto folder = cached_baseline(run_id);
    if (!folder) folder.error().text += " with --baseline";
    return folder;
}

}  // namespace

Result<std::unique_ptr<Replica>> open_baseline(const PublishArguments& arguments,
                                               const RunAccess& access) {
    Result<fs::path> folder = fs::path(arguments.baseline);
    if (arguments.baseline.empty()) folder = default_baseline(access, arguments.layout == "trl");
    if (!folder) return std::unexpected(std::move(folder).error());
    FolderReplicaOptions cache;
    cache.threads = arguments.common.threads;
    cache.durable = false;
    cache.progress = progress_bar(arguments.common);
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

Error with_flag(Error error) {
    if (error.kind == ErrorKind::kFenced) error.text += " (--take-over)";
    return error;
}

void print_published(const PublishArguments& arguments, const Published& published,
                     double seconds) {
    const PublishReport& report = published.report;
    clear_progress();
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

}  // namespace wisp::cli
